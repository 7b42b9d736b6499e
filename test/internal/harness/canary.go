package harness

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
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

// Canaries are pieces of canaries, with the names of those. They are looked for together, in any encoding that keeps eight bytes of a
// piece together: plain, JSON, URL, base64 once or twice.
type Canaries map[string]string

// NewCanaries names the canaries to look for.
func NewCanaries(canaries map[string]Canary) Canaries {
	pieces := Canaries{}
	for name, canary := range canaries {
		pieces.add(name, canary.halves[0])
		pieces.add(name, canary.halves[1])
		pieces.Add(name, canary.String())
	}
	return pieces
}

// Add looks for a secret that somebody else has made, too. All of it must be random: each piece of eight bytes is looked for.
func (c Canaries) Add(name, secret string) {
	c.add(name, secret)
	for _, encoded := range encodings(secret) {
		c.add(name+" in base64", encoded)
		// A kubeconfig holds the token, and is encoded itself.
		for _, twice := range encodings(encoded) {
			c.add(name+" in base64 twice", twice)
		}
	}
}

// encodings are the three base64 texts that a text can be in the middle of: what stands before decides how three bytes become four
// letters. The letters at both ends are left out, for they depend on what is beside.
func encodings(text string) [3]string {
	var all [3]string
	for offset := range all {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
		all[offset] = encoded[4 : len(encoded)-4]
	}
	return all
}

func (c Canaries) add(name, text string) {
	for i := range len(text) - window + 1 {
		c[text[i:i+window]] = name
	}
}

// In names the canaries that occur in a content.
func (c Canaries) In(content []byte) []string {
	// Most places are passed by their first two bytes.
	var starts [1 << 16]bool
	for piece := range c {
		starts[int(piece[0])<<8|int(piece[1])] = true
	}
	found := map[string]bool{}
	var names []string
	for i := range len(content) - window + 1 {
		if !starts[int(content[i])<<8|int(content[i+1])] {
			continue
		}
		if name, ok := c[string(content[i:i+window])]; ok && !found[name] {
			found[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Under looks into every file below a folder, except below the folders that are named. It returns the names of the canaries by
// file, and how many bytes it has read.
func (c Canaries) Under(t testing.TB, dir string, except ...string) (found map[string][]string, read int) {
	t.Helper()
	found = map[string][]string{}
	files := os.DirFS(dir)
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
		if names := c.In(content); len(names) > 0 {
			found[name] = names
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read %s: %v", dir, err)
	}
	return found, read
}
