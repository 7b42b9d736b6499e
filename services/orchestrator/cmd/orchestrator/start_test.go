package main

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheStartIsRefusedWhereEverybodyCouldAct(t *testing.T) {
	t.Setenv("KEB_DATABASE_URL", "postgres://keb@127.0.0.1:1/keb")
	for _, tc := range []struct {
		name, addr, mode, tokens, want string
	}{
		{name: "on loopback", addr: "127.0.0.1:8081"},
		{name: "on every address", addr: "0.0.0.0:8081", want: "KEB_OPERATOR_ADDR: "},
		{name: "all addresses, without a host", addr: ":8081", want: "KEB_ACCESS=none"},
		{name: "on purpose", addr: ":8081", mode: "none"},
		{name: "a file that does not exist", addr: ":8081", tokens: filepath.Join(t.TempDir(), "tokens.yaml"), want: "KEB_ACCESS_TOKENS_FILE: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("KEB_OPERATOR_ADDR", tc.addr)
			t.Setenv("KEB_ACCESS", tc.mode)
			t.Setenv("KEB_ACCESS_TOKENS_FILE", tc.tokens)
			err := program().Run(t.Context(), slog.New(slog.DiscardHandler), []string{"-check-config"}, io.Discard)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
