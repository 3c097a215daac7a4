"""Security headers: what browsers may do with answers."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PLAIN_POLICY = "default-src 'none'; frame-ancestors 'none'"
_COMMON = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_PAGE = [*_COMMON, (b"content-security-policy", PAGE_POLICY.encode())]
_PLAIN = [*_COMMON, (b"content-security-policy", PLAIN_POLICY.encode())]


def page_headers() -> list[tuple[bytes, bytes]]:
    """Return the headers of a page: its scripts and styles come from this server alone."""
    return _PAGE


def plain_headers() -> list[tuple[bytes, bytes]]:
    """Return the headers of everything that is no page."""
    return _PLAIN
