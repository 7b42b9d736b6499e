package harness

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func TestCanary_EachEncoding_IsFound(t *testing.T) {
	t.Parallel()
	canary := NewCanary()
	pieces := NewCanaries(map[string]Canary{"it": canary})
	text := "token: " + canary.String() + "\n"
	inJSON, err := json.Marshal(map[string]string{"token": canary.String()})
	require.NoError(t, err)
	once := base64.StdEncoding.EncodeToString([]byte(text))
	wide := func(order binary.AppendByteOrder) string {
		var out []byte
		for _, unit := range utf16.Encode([]rune(text)) {
			out = order.AppendUint16(out, unit)
		}
		return string(out)
	}
	cases := map[string]string{
		"plain": text, "JSON": string(inJSON), "URL": url.QueryEscape(text), "URL path": url.PathEscape(text), "base64": once,
		"base64, shifted":       base64.StdEncoding.EncodeToString([]byte("y" + text)),
		"base64, shifted twice": base64.StdEncoding.EncodeToString([]byte("yy" + text)),
		"base64 of URLs":        base64.RawURLEncoding.EncodeToString([]byte("y" + text)),
		"base64 twice":          base64.StdEncoding.EncodeToString([]byte("data: " + once)),
		"a piece":               "..." + canary.String()[10:18] + "...", "the other half": canary.halves[1],
		"hex": hex.EncodeToString([]byte(text)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(text))),
		"UTF-16": wide(binary.LittleEndian), "UTF-16, the other order": wide(binary.BigEndian),
		"gzip":          compressed(t, text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		"zlib":          compressed(t, text, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }),
		"s2":            compressed(t, text, func(w io.Writer) io.WriteCloser { return s2.NewWriter(w) }),
		"zstd":          compressed(t, text, func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z }),
		"gzip of gzip":  compressed(t, compressed(t, text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }), func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		"pglz in a row": pglz(text),
	}
	for name, content := range cases {
		for _, around := range []string{"", "\x00\x01\xff "} {
			if names := pieces.In([]byte(around + content + around)); len(names) == 0 {
				t.Errorf("not found in %s: %q", name, content)
			}
		}
	}
	if names := pieces.In(bytes.Repeat([]byte("nothing here "), 1000)); len(names) > 0 {
		t.Errorf("%v found where it is not", names)
	}
}

// compressed is a long text with another in its middle.
func compressed(t *testing.T, text string, method func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var out bytes.Buffer
	w := method(&out)
	filler := strings.Repeat("what does not matter, ", 200)
	_, err := io.WriteString(w, filler+text+filler)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

// pglz is a text as Postgres compresses what does not repeat: a byte of flags before each eight literal bytes.
func pglz(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if i%8 == 0 {
			out.WriteByte(0)
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

func TestCanary_ForeignSecret_IsFoundComplete(t *testing.T) {
	t.Parallel()
	pieces := Canaries{}
	pieces.AddWhole("key", "SharedAccessKey=abcdefgh1234")
	for content, want := range map[string]int{
		"x SharedAccessKey=abcdefgh1234 y": 1, "SharedAccessKey=": 0,
		base64.StdEncoding.EncodeToString([]byte("ab SharedAccessKey=abcdefgh1234 c")): 1,
	} {
		if names := pieces.In([]byte(content)); len(names) != want {
			t.Errorf("%d found in %q: %v", len(names), content, names)
		}
	}
}
