"""The same fault, the same signature; another fault, another one."""

import pytest

from operations.signature import innermost_own_frame, signature

A = "3f2b8f0e-6c2b-4f5e-9c55-0d1a8a4f7b11"
B = "9d9c2a76-0b1f-4e2d-8a37-52b6a0f3c1aa"

SAME = [
    (f"Operation {A} not found", f"Operation {B} not found"),
    (f"Operation {A.upper()} not found", f"Operation {B} not found"),
    (f"no row {A.replace('-', '')}", f"no row {B.replace('-', '')}"),
    ("<Purchase object at 0x7f3c5a10>", "<Purchase object at 0x7fffdeadbeef>"),
    ("timed out after 15.02 s", "timed out after 3 s"),
    ("timed out after 1500ms", "timed out after 20ms"),
    ("line one\nline two", "line one\r\nline two"),
    ("line one\\r\\nline two", "line one\nline two"),
    ("too   many\tblanks", "too many blanks"),
    ("connect to 10.0.0.1:5432 refused", "connect to 192.168.17.4:6432 refused"),
    ("connect to [2001:db8::1] refused", "connect to [2001:db8::ff00:42] refused"),
    ("connect to db-1.internal refused", "connect to db-12.internal refused"),
    ("charge ch_3OaBcD9x1 is unknown", "charge ch_1PqRsT7z2 is unknown"),
    ("No such payment_intent: 'pi_3MtwBwLk'", "No such payment_intent: 'pi_9XyzAbCd1'"),
    ("at 2026-11-29T10:00:00Z it broke", "at 2025-01-02T23:59:59.123+02:00 it broke"),
    ("at 2026-11-29 10:00:00,123 it broke", "at 2026-11-30 11:30:02,999 it broke"),
    ("user anna@example.com is blocked", "user b.o.b+x@mail.example.org is blocked"),
    (
        "digest d41d8cd98f00b204e9800998ecf8427e differs",
        "digest 0cc175b9c0f1b6a831c399e269772661 differs",
    ),
    ("sku-17 is gone", "sku-4 is gone"),
    ("amount 1,250.00 exceeds 1,000.00", "amount 9.99 exceeds 5.00"),
    ("row (42, 7) violates unique", "row (1337, 8) violates unique"),
    ("expected 3 items, got 5", "expected 10 items, got 11"),
    ("session 8f3a9b2c1d expired", "session 77ab01cd9e expired"),
    ("Key (id)=(7) is not present", "Key (id)=(123456789) is not present"),
    ("503: try later (req_Ab12Cd34)", "503: try later (req_Zz98Yy76)"),
    ("payments: 500: oops (req_a1b2c3d4)", "payments: 500: oops (req_9z8y7x6w)"),
    ("status 503 after 2 tries", "status 503 after 7 tries"),
    ("port 40123 is in use", "port 50999 is in use"),
    ("-5 is below 0", "-17 is below 0"),
    ("  padded message 1 ", "padded message 2"),
]
DIFFERENT = [
    ("The supplier answered with status 503.", "The supplier answered with status 404."),
    ("HTTP 500 from gateway", "HTTP 502 from gateway"),
    ("HTTP/1.1 500 Internal", "HTTP/1.1 429 Too Many"),
    ("[Errno 111] refused", "[Errno 113] refused"),
    ("payments: 500: no", "payments: 402: no"),
    ("401: no (req_Ab12Cd34)", "403: no (req_Ab12Cd34)"),
    ("SQLSTATE 40P01", "SQLSTATE 55P03"),
    ("error code: 1045", "error code: 2003"),
    ("timed out after 3 s", "refused after 3 s"),
    ("'sku'", "'quantity'"),
    ("No such payment_intent: 'pi_3MtwBwLk'", "No such customer: 'cus_3MtwBwLk'"),
    ("connect to db failed", "connect to cache failed"),
    ("user 5 is blocked", "user 5 is unknown"),
    ("read 5 bytes", "wrote 5 bytes"),
    ("column a is null", "column b is null"),
]


def of(message: str) -> str:
    return signature("dependency", "DependencyError", message, "purchases/payment.py:pay")


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_fault_has_one_signature(one: str, other: str) -> None:
    """C3: ids, numbers, addresses, times and line ends do not count."""
    assert of(one) == of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_faults_have_two_signatures(one: str, other: str) -> None:
    """C3"""
    assert of(one) != of(other)


def test_category_type_and_frame_tell_faults_apart() -> None:
    """C3"""
    message = "timed out after 3 s"
    variants = {
        signature("timeout", "T", message, "a.py:f"),
        signature("dependency", "T", message, "a.py:f"),
        signature("timeout", "U", message, "a.py:f"),
        signature("timeout", "T", message, "a.py:g"),
    }
    assert len(variants) == 4


def test_the_frame_is_of_our_code_and_has_no_line_number() -> None:
    """C3: a deploy that moves a line makes no new fault."""
    try:
        int("x")
    except ValueError as error:
        frame = innermost_own_frame(error.__traceback__)
    assert frame.endswith("test_signature.py:test_the_frame_is_of_our_code_and_has_no_line_number")
