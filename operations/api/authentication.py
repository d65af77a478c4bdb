"""``Authorization: Bearer …``, one statement a request."""

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from operations import tokens
from operations.database import persistently
from operations.models import ApiToken


class BearerAuthentication(BaseAuthentication):
    """Sets ``request.user`` and, as ``request.auth``, the token."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiToken] | None:
        """None: there is no token at all, which is for the permissions to judge.

        :raises AuthenticationFailed: the token is not a valid one
        :raises DatabaseUnavailable: nobody can be authenticated right now
        """
        header = request.META.get("HTTP_AUTHORIZATION")
        if header is None:
            return None
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("The scheme of Authorization must be Bearer.")
        # Usually the first statement of the request, so a connection that died while it
        # was kept shows here, where repeating is free.
        found = persistently(lambda: tokens.find(token.strip(" \t")))
        if found is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.")
        return found.user, found

    def authenticate_header(self, _request: Request) -> str:
        return 'Bearer realm="sekali"'


def owner_of(request: Request) -> int:
    """The primary key of the user for whom everything in a request is done.

    :raises NotAuthenticated: there is none
    """
    if request.user.pk is None:
        raise NotAuthenticated
    return request.user.pk
