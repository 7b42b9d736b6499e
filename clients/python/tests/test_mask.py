"""The time that masking takes, and what it leaves."""

from __future__ import annotations

import time
import unittest

from keb_worker.mask import Secrets, mask_text


class TestMask(unittest.TestCase):
    def setUp(self) -> None:
        self.started = time.monotonic()

    def tearDown(self) -> None:
        self.assertLess(time.monotonic() - self.started, 1)

    def test_long_secret_is_removed_in_time(self) -> None:
        secrets = Secrets()
        secrets.learn("s3cret " * 40_000)
        for text, want in (("it is done", "it is done"), ("it failed...", "it failed..."), ("it is s3cret s3cret...", "it is [redacted]")):
            with self.subTest(text):
                self.assertEqual(secrets.redact(text), want)

    def test_long_body_is_masked_in_time(self) -> None:
        body = "a." * 50_000
        self.assertEqual(mask_text(f"{body} x://u:p@h"), f"{body} x://[redacted]@h")


if __name__ == "__main__":
    unittest.main()
