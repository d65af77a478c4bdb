"""The user that operations of the system itself belong to.

With an owner they have keys, as those of clients do; with this one no client can see or
cancel them. Nobody can sign in as it, and the rules for user names keep others from its name.
"""

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password

#: With a colon, which no form and no command accepts in the name of a user.
NAME = "sekali:system"


def system_user() -> int:
    """Its primary key. It is made when it is first asked for."""
    user, _ = get_user_model().objects.get_or_create(
        username=NAME, defaults={"is_active": False, "password": make_password(None)}
    )
    return int(user.pk)
