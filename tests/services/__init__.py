"""Tests with real servers.

Ray listens at all interfaces. Its clusters get a token of this run, before Ray is imported anywhere: a token of the
user is neither needed nor touched.
"""

import os
import secrets

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
