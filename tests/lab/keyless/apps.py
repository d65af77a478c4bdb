from django.apps import AppConfig

_GUARD = "ON CONFLICT (owner_id, kind, key) DO NOTHING"


class KeylessApp(AppConfig):
    name = "tests.lab.keyless"

    def ready(self) -> None:
        """Together with a database whose unique constraint was dropped, every key is new."""
        from operations import verbs

        if _GUARD not in verbs._ACCEPT:
            raise RuntimeError("The accepting statement has another guard now.")
        verbs._ACCEPT = verbs._ACCEPT.replace(_GUARD, "")
