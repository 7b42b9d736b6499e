package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the service that receives signals.
func TestMain(m *testing.M) {
	if kind := os.Getenv(helperEnv); kind != "" {
		beAService(kind)
	}
	goleak.VerifyTestMain(m)
}

func TestMain_Errors_CodeAndOneLine(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx  context.Context
		err  error
		code int
		line string
	}{
		"no error":                    {t.Context(), nil, 0, ""},
		"told to stop":                {ended, context.Canceled, 0, ""},
		"cancelled without a signal":  {t.Context(), context.Canceled, 1, "keb: context canceled\n"},
		"an error":                    {t.Context(), errors.New("broken"), 1, "keb: broken\n"},
		"an error while stopping":     {ended, errors.New("broken"), 1, "keb: broken\n"},
		"control characters":          {t.Context(), errors.New("a\tb\x1b[2J\u009bc"), 1, "keb: a b[2Jc\n"},
		"two errors stay in one line": {t.Context(), errors.Join(errors.New("a"), errors.New("b")), 1, "keb: a; b\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code := mainCode(tt.ctx, "keb", &out, func(context.Context, *slog.Logger) error { return tt.err })
			if code != tt.code || out.String() != tt.line {
				t.Errorf("got %d, %q; want %d, %q", code, out.String(), tt.code, tt.line)
			}
		})
	}
}

func TestMain_UnknownLogLevel_Fails(t *testing.T) {
	t.Setenv("KEB_LOG_LEVEL", "loud")
	var out bytes.Buffer
	code := mainCode(t.Context(), "keb", &out, func(context.Context, *slog.Logger) error { return nil })
	if code != 1 || !strings.Contains(out.String(), `log level "loud": want debug, info, warn or error`) {
		t.Errorf("got %d, %q", code, out.String())
	}
}

func TestPrintable_CharactersThatControl_AreRemoved(t *testing.T) {
	t.Parallel()
	const text = "a\u202eb\u2066c\u2028d\u2029e\u200bf\x1bg\u009bh\ti\n"
	if got := Printable(text); got != "abcdefgh\ti\n" {
		t.Errorf("%q", got)
	}
}
