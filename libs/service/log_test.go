package service

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogger_FormatsAndLevels_AreUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format, level, want, notWanted string
	}{
		{"", "", `"msg":"told"`, "whispered"},
		{"json", "debug", `"msg":"whispered"`, "msg=told"},
		{"text", "info", "msg=told", "whispered"},
		{"text", "ERROR", "", "told"},
	}
	for _, tt := range tests {
		t.Run(tt.format+"/"+tt.level, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log, err := Logger(&out, tt.format, tt.level)
			require.NoError(t, err)
			log.Debug("whispered")
			log.Info("told")
			if got := out.String(); !strings.Contains(got, tt.want) || strings.Contains(got, tt.notWanted) {
				t.Errorf("got %q, want %q in it and not %q", got, tt.want, tt.notWanted)
			}
		})
	}
}

func TestLogger_UnknownFormat_Fails(t *testing.T) {
	t.Parallel()
	_, err := Logger(&bytes.Buffer{}, "xml", "info")
	if err == nil || err.Error() != `log format "xml": want json or text` {
		t.Errorf("got %v", err)
	}
}
