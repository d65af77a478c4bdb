"""The POST that starts an operation: what a domain app subclasses in three lines."""

from typing import Any, ClassVar

from rest_framework.exceptions import APIException, Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from operations import registry
from operations.api import correlation, key, limits, strict
from operations.api.authentication import owner_of
from operations.api.conditional import Expected, ExpectedVersion, etag, expectation, require
from operations.api.problem import ApiProblem
from operations.api.representation import location, represent, retry_after
from operations.api.schema import SubmitSchema
from operations.intake import KeyReused, NotAccepting, Submission
from operations.models import OPEN
from operations.verbs import Accepted


class SubmitView(APIView):
    """Accepts operations of one kind::

        class PurchaseView(SubmitView):
            kind = "purchases.purchase"

    Whatever would refuse a well-formed request (the rate limit, :meth:`check`, the expected
    version) first looks the key up, and a replay is answered instead.
    """

    #: Name of the registered kind.
    kind: ClassVar[str]
    #: Whether clients may say which version of something they rely on. Then
    #: :meth:`current_version` must tell it, and the kind has a ``precondition`` that checks
    #: ``claim.precondition["versions"]`` once more, before the first effect.
    has_version: ClassVar[bool] = False

    schema = SubmitSchema()

    def check(self, request: Request, data: dict[str, Any]) -> None:
        """Check validated input against what is stored.

        :raises ValidationError: field errors, answered with 400
        :raises ApiProblem: any other refusal
        """

    def current_version(self, request: Request, data: dict[str, Any]) -> int | None:
        """The version that ``If-Match`` and ``expected_version`` speak of, as it is now.

        Called for requests with one of these only. None: the thing is not there.
        """
        raise NotImplementedError

    def post(self, request: Request) -> Response:
        """Start the operation, or answer with the one that the key stands for."""
        wait = limits.of_writes(owner_of(request), self.kind)
        try:
            submission, data, expected = self._read(request)
        except APIException as error:
            if wait is not None:
                raise Throttled(wait) from error
            raise
        try:
            accepted = self._accept(request, submission, data, expected, wait)
        except KeyReused as error:
            raise _reused(error) from error
        except NotAccepting as error:
            raise _not_accepting(error) from error
        return _answer(accepted)

    def _accept(
        self,
        request: Request,
        submission: Submission,
        data: dict[str, Any],
        expected: Expected | None,
        wait: float | None,
    ) -> Accepted:
        if expected is not None and (earlier := submission.earlier()):
            return earlier
        try:
            if wait is not None:
                raise Throttled(wait)
            self.check(request, data)
            if expected is not None:
                require(expected, self.current_version(request, data))
        except APIException:
            if earlier := submission.earlier():
                return earlier
            raise
        return submission.accept()

    def _read(self, request: Request) -> tuple[Submission, dict[str, Any], Expected | None]:
        """All that can be said of a request without looking at anything stored."""
        name = _key(request)
        if "HTTP_IF_MATCH" in request.META and not self.has_version:
            raise ApiProblem(400, "malformed_request", "There is no version to match here.")
        strict.no_query(request)
        body = strict.body_of(request)
        promise = ExpectedVersion.taken_from(body) if self.has_version else ExpectedVersion(data={})
        serializer = registry.get(self.kind).serializer(data=body, context={"request": request})
        strict.validate(promise, serializer)
        expected = expectation(request, promise)
        ids = correlation.of(request)
        submission = Submission(
            self.kind,
            owner=owner_of(request),
            key=name,
            serializer=serializer,
            precondition=None if expected is None else expected.stored(),
            request_id=ids.request_id,
            traceparent=ids.traceparent,
        )
        return submission, serializer.validated_data, expected


def _key(request: Request) -> str:
    header = request.META.get("HTTP_IDEMPOTENCY_KEY")
    try:
        return key.parse(header)
    except key.BadKey as error:
        name = "idempotency_key_missing" if header is None else "idempotency_key_invalid"
        raise ApiProblem(400, name, str(error)) from error


def _reused(error: KeyReused) -> ApiProblem:
    return ApiProblem(
        422,
        "idempotency_key_reused",
        "The key was used for another request. Take a new key for a new request.",
        operation_id=str(error.operation["id"]),
        operation=location(error.operation),
    )


def _not_accepting(refusal: NotAccepting) -> ApiProblem:
    why = "Too much of it is waiting." if refusal.overloaded else "It is switched off."
    return ApiProblem(
        503,
        "not_accepting",
        f"Nothing new of this kind is taken in. {why} Try again in {refusal.wait} s.",
        headers={"Retry-After": str(refusal.wait)},
    )


def _answer(accepted: Accepted) -> Response:
    row = accepted.operation
    headers = {"Location": location(row), "ETag": etag(row["version"]), **retry_after(row)}
    # A new operation is answered with 202 in any case; a replay by what became of it.
    status = 202
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
        status = 202 if row["state"] in OPEN else 200
    return Response(represent(row), status=status, headers=headers)
