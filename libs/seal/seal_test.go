package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/seal"
)

func keyOf(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, seal.KeySize))
}

func keyring(t testing.TB, s string) *seal.Keyring {
	t.Helper()
	k, err := seal.ParseKeyring(s)
	require.NoError(t, err)
	return k
}

func sealed(t testing.TB, k *seal.Keyring, plain, owner string) string {
	t.Helper()
	s, err := k.Seal([]byte(plain), []byte(owner))
	require.NoError(t, err)
	return s
}

func TestOpen_SealedValue_ReturnsPlain(t *testing.T) {
	t.Parallel()
	k := keyring(t, "a:"+keyOf(1))
	for _, plain := range []string{"", "secret", strings.Repeat("long ", 10_000)} {
		s := sealed(t, k, plain, "owner")
		if !strings.HasPrefix(s, "v1.a.") {
			t.Errorf("sealed value %.20q does not name its version and key", s)
		}
		if plain != "" && strings.Contains(s, plain) {
			t.Error("sealed value holds the plain one")
		}
		got, err := k.Open(s, []byte("owner"))
		if err != nil || string(got) != plain {
			t.Errorf("opened %.20q, %v; want %.20q", got, err, plain)
		}
	}
}

func TestSeal_SameValue_DiffersEachTime(t *testing.T) {
	t.Parallel()
	k := keyring(t, "a:"+keyOf(1))
	if first, second := sealed(t, k, "x", "o"), sealed(t, k, "x", "o"); first == second {
		t.Error("the nonce repeats")
	}
}

func TestOpen_OtherOwner_ReturnsErrTampered(t *testing.T) {
	t.Parallel()
	k := keyring(t, "a:"+keyOf(1)+",b:"+keyOf(1))
	s := sealed(t, k, "secret", "instance 1")
	flipped := []byte(s)
	flipped[len(flipped)-5] ^= 1
	for name, c := range map[string]struct{ value, owner string }{
		"other owner":     {s, "instance 2"},
		"no owner":        {s, ""},
		"changed byte":    {string(flipped), "instance 1"},
		"cut off":         {s[:len(s)-4], "instance 1"},
		"other key id":    {strings.Replace(s, "v1.a.", "v1.b.", 1), "instance 1"}, // the same key with another id
		"other version":   {strings.Replace(s, "v1.", "v2.", 1), "instance 1"},
		"not base64":      {"v1.a.!!", "instance 1"},
		"no ciphertext":   {"v1.a.", "instance 1"},
		"plain":           {"secret", "instance 1"},
		"empty":           {"", "instance 1"},
		"bad key id":      {"v1.a b.AAAA", "instance 1"},
		"padded with = ":  {s + "=", "instance 1"},
		"with line break": {s + "\n", "instance 1"},
	} {
		if _, err := k.Open(c.value, []byte(c.owner)); !errors.Is(err, seal.ErrTampered) {
			t.Errorf("%s: error is %v, want ErrTampered", name, err)
		}
	}
}

func TestKeyring_NewKey_OpensOldValues(t *testing.T) {
	t.Parallel()
	old := keyring(t, "2025:"+keyOf(1))
	s := sealed(t, old, "secret", "o")
	both := keyring(t, "2026:"+keyOf(2)+", 2025:"+keyOf(1))
	if got, err := both.Open(s, []byte("o")); err != nil || string(got) != "secret" {
		t.Fatalf("opened %q, %v after adding a key", got, err)
	}
	if !both.Stale(s) {
		t.Error("a value of the old key is not stale")
	}
	s2 := sealed(t, both, "secret", "o")
	if both.Stale(s2) {
		t.Error("a value of the new key is stale")
	}
	if _, err := keyring(t, "2026:"+keyOf(2)).Open(s, []byte("o")); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("error is %v after dropping the key, want ErrUnknownKey", err)
	}
}

func TestParseKeyring_Invalid_OmitsKeys(t *testing.T) {
	t.Parallel()
	const canary = "Q0FOQVJZ"
	for in, want := range map[string]string{
		"":                                       "key 1: want",
		canary:                                   "key 1: want",
		":" + canary:                             "the id",
		canary + "=:id":                          "the id",
		"a:" + canary:                            `"a": the key has 6 bytes: want 32`,
		"a:" + canary + "!":                      `"a": the key is not base64`,
		"a:" + keyOf(1) + ",":                    "key 2: want",
		"a:" + keyOf(1) + ",a:" + keyOf(2):       "duplicated",
		strings.Repeat("x", 65) + ":" + keyOf(1): "the id",
	} {
		_, err := seal.ParseKeyring(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want one with %q", in, err, want)
			continue
		}
		if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), keyOf(1)) {
			t.Errorf("%q: error %q repeats the key", in, err)
		}
	}
}

func TestKeyring_String_ContainsOnlyIDs(t *testing.T) {
	t.Parallel()
	k := keyring(t, "a:"+seal.NewKey()+",b:"+seal.NewKey())
	for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
		if got := fmt.Sprintf(format, k); got != "keyring[a,b]" {
			t.Errorf("%s prints %q", format, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	k := keyring(f, "a:"+keyOf(1))
	f.Add(sealed(f, k, "secret", "o"))
	f.Add("v1.a.AAAA")
	f.Add("v1..")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := k.Open(s, []byte("another owner")); err == nil {
			t.Errorf("%q opens for an owner it was not sealed for", s)
		}
	})
}
