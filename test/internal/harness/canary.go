package harness

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// window is how many bytes of a canary are looked for in one piece. Postgres may compress a long value; its pglz then
// leaves runs of eight bytes of what does not repeat.
const window = 8

// Canary is a secret that is found wherever it is written.
type Canary struct{ halves [2]string }

// NewCanary is a secret like no other. JSON and URLs must escape what is between its halves.
func NewCanary() Canary { return Canary{halves: [2]string{rand.Text(), rand.Text()}} }

// String is the secret.
func (c Canary) String() string { return c.halves[0] + `"&<` + c.halves[1] }

// Canaries are pieces of secrets, with the names of those. They are looked for together, in any encoding that keeps a piece
// together: plain, JSON, URL, UTF-16, hexadecimal, base64 of both alphabets once or twice, and compressed.
type Canaries map[string]string

// NewCanaries names the canaries to look for.
func NewCanaries(canaries map[string]Canary) Canaries {
	pieces := Canaries{}
	for name, canary := range canaries {
		pieces.AddCanary(name, canary)
	}
	return pieces
}

// AddCanary looks for one more.
func (c Canaries) AddCanary(name string, canary Canary) {
	c.add(name, canary.halves[0], window)
	c.add(name, canary.halves[1], window)
	c.Add(name, canary.String())
}

// Add adds a secret that the test has not made. All of it must be random, because every piece of eight bytes is searched for, or of
// sixteen if the secret is hexadecimal, as many other values are.
func (c Canaries) Add(name, secret string) {
	plain := window
	if _, err := hex.DecodeString(secret[:len(secret)/2*2]); err == nil {
		plain = 2 * window
	}
	c.add(name, secret, plain)
	c.add(name+" in hex", hex.EncodeToString([]byte(secret)), 2*window)
	c.add(name+" in hex", strings.ToUpper(hex.EncodeToString([]byte(secret))), 2*window)
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var wide []byte
		for _, unit := range utf16.Encode([]rune(secret)) {
			wide = order.AppendUint16(wide, unit)
		}
		c.add(name+" in UTF-16", string(wide), 2*plain)
	}
	for _, encoded := range encodings(secret) {
		c.add(name+" in base64", encoded, plain)
		// A kubeconfig holds the token, and is encoded itself.
		for _, twice := range encodings(encoded) {
			c.add(name+" in base64 twice", twice, plain)
		}
	}
}

// AddWhole looks for a secret of which only the whole is like no other, such as a private key or an address with a password.
func (c Canaries) AddWhole(name, secret string) {
	c.add(name, secret, len(secret))
	for _, encoded := range encodings(secret) {
		c.add(name+" in base64", encoded, len(encoded))
	}
}

// encodings are the base64 texts, three of each alphabet, that a text can be in the middle of: the text before it determines how three
// bytes become four letters. The letters at both ends are left out, for they depend on what is beside.
func encodings(text string) []string {
	var all []string
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			encoded := alphabet.EncodeToString([]byte(strings.Repeat("x", offset) + text))
			all = append(all, encoded[4:len(encoded)-4])
		}
	}
	return all
}

func (c Canaries) add(name, text string, size int) {
	for i := range len(text) - size + 1 {
		c[text[i:i+size]] = name
	}
}

// In names the canaries that occur in a content.
func (c Canaries) In(content []byte) []string { return c.finder().in(content, 0) }

// finder looks for pieces by how they begin.
type finder struct {
	// first and second tell which pairs of bytes a piece may begin with, and go on with: most places are passed by them.
	first, second [1 << 16]bool
	pieces        map[string][]string // by their first eight bytes
	names         Canaries
}

func (c Canaries) finder() *finder {
	f := &finder{pieces: make(map[string][]string, len(c)), names: c}
	for piece := range c {
		f.first[int(piece[0])<<8|int(piece[1])] = true
		f.second[int(piece[2])<<8|int(piece[3])] = true
		f.pieces[piece[:window]] = append(f.pieces[piece[:window]], piece)
	}
	return f
}

// maxDepth is how often something may be compressed, maxExpanded how long what comes out.
const (
	maxDepth    = 3
	maxExpanded = 64 << 20
)

// expanders undo what a compressed content may begin with.
var expanders = []struct {
	magic  string
	expand func(io.Reader) (io.Reader, error)
}{
	{"\x1f\x8b\x08", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"\x78\x01", func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }},
	{"\x78\x9c", func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }},
	{"\x78\xda", func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }},
	{"\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderConcurrency(1)) }},
	{"\xff\x06\x00\x00", func(r io.Reader) (io.Reader, error) { return s2.NewReader(r), nil }},
}

func (f *finder) in(content []byte, depth int) []string {
	found := map[string]bool{}
	for i := range len(content) - window + 1 {
		if !f.first[int(content[i])<<8|int(content[i+1])] || !f.second[int(content[i+2])<<8|int(content[i+3])] {
			continue
		}
		for _, piece := range f.pieces[string(content[i:i+window])] {
			if len(content)-i >= len(piece) && string(content[i:i+len(piece)]) == piece {
				found[f.names[piece]] = true
			}
		}
	}
	for _, e := range expanders {
		for rest, at := content, 0; depth < maxDepth; rest = rest[at+1:] {
			if at = bytes.Index(rest, []byte(e.magic)); at < 0 {
				break
			}
			r, err := e.expand(bytes.NewReader(rest[at:]))
			if err != nil {
				continue
			}
			// As much as comes out before the end or the first thing that cannot be.
			expanded, _ := io.ReadAll(io.LimitReader(r, maxExpanded))
			for _, name := range f.in(expanded, depth+1) {
				found[name] = true
			}
			if d, ok := r.(*zstd.Decoder); ok {
				d.Close()
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Under looks into every file below a folder, except below the folders that are named. It returns the names of the canaries by
// file, and how many bytes it has read.
func (c Canaries) Under(t testing.TB, dir string, except ...string) (found map[string][]string, read int) {
	t.Helper()
	found = map[string][]string{}
	files, look := os.DirFS(dir), c.finder()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a Postgres that was left behind may still be about to end
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(except, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := fs.ReadFile(files, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		read += len(content)
		if names := look.in(content, 0); len(names) > 0 {
			found[name] = names
		}
		return nil
	})
	require.NoErrorf(t, err, "read %s", dir)
	return found, read
}
