// Package seal keeps secrets that must be stored: authenticated encryption with
// keys that can be changed while values sealed with the old ones still open.
//
// A sealed value reads "v1.<key id>.<base64>". It is AES-256-GCM with a random
// nonce, and is bound to its owner: a value copied to another row does not open.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the size of a key in bytes, before base64.
const KeySize = 32

const (
	version   = "v1"
	maxIDSize = 64
)

var (
	// ErrUnknownKey means that the keyring lacks the key a value was sealed with.
	ErrUnknownKey = errors.New("sealed with an unknown key")
	// ErrTampered means that a value is damaged, or belongs to another owner than the one it is opened for.
	ErrTampered = errors.New("sealed value is damaged or belongs to another owner")
)

// Keyring holds the keys. It is safe for concurrent use, and prints only the ids of its keys.
type Keyring struct {
	first string
	ids   []string
	keys  map[string]cipher.AEAD
}

// ParseKeyring reads "id1:base64key,id2:base64key". The first key seals, all of them open: to change keys, put the new
// one in front, seal everything anew (see Stale), then drop the old one. An id has 1 to 64 letters, digits, hyphens or
// underscores; a key has 32 bytes, in standard or URL base64. No error repeats a key.
func ParseKeyring(s string) (*Keyring, error) {
	k := &Keyring{keys: make(map[string]cipher.AEAD)}
	for i, part := range strings.Split(s, ",") {
		if err := k.add(strings.TrimSpace(part)); err != nil {
			return nil, fmt.Errorf("parse keyring: key %d: %w", i+1, err)
		}
	}
	return k, nil
}

func (k *Keyring) add(part string) error {
	id, encoded, ok := strings.Cut(part, ":")
	if !ok {
		return errors.New(`want "<id>:<base64 of 32 bytes>"`)
	}
	if !validID(id) {
		// A bad id may be a key that stands in the wrong place, so it is not repeated.
		return fmt.Errorf("the id: want 1 to %d letters, digits, hyphens or underscores", maxIDSize)
	}
	if _, twice := k.keys[id]; twice {
		return fmt.Errorf("the id %q stands there twice", id)
	}
	key, err := decodeKey(encoded)
	if err != nil {
		return fmt.Errorf("%q: %w", id, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return fmt.Errorf("%q: %w", id, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return fmt.Errorf("%q: %w", id, err)
	}
	if k.first == "" {
		k.first = id
	}
	k.ids = append(k.ids, id)
	k.keys[id] = aead
	return nil
}

func decodeKey(s string) ([]byte, error) {
	s = strings.TrimRight(s, "=")
	enc := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	key, err := enc.DecodeString(s)
	if err != nil {
		return nil, errors.New("the key is not base64")
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("the key has %d bytes: want %d", len(key), KeySize)
	}
	return key, nil
}

func validID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return id != "" && len(id) <= maxIDSize
}

// NewKey makes a random key, in the form that ParseKeyring reads after an id.
func NewKey() string {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // crypto/rand.Read never fails: it ends the program instead
	return base64.StdEncoding.EncodeToString(key)
}

// Seal encrypts plain with the first key and binds it to associated, which is not part of the value and must be given
// again to Open: for example the instance id and the name of the credentials. One key is good for 2^32 values.
func (k *Keyring) Seal(plain, associated []byte) (string, error) {
	aead, ok := k.keys[k.first]
	if !ok {
		return "", errors.New("seal: the keyring is empty")
	}
	prefix := version + "." + k.first + "."
	sealed := aead.Seal(nil, nil, plain, bound(prefix, associated)) //nolint:gosec // this AEAD makes its own random nonce
	return prefix + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open decrypts a sealed value. Its errors wrap ErrUnknownKey or ErrTampered.
func (k *Keyring) Open(sealed string, associated []byte) ([]byte, error) {
	v, rest, _ := strings.Cut(sealed, ".")
	id, encoded, ok := strings.Cut(rest, ".")
	// The base64 decoder passes over line breaks; a sealed value has none.
	if v != version || !ok || !validID(id) || strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("open: want %s.<key id>.<base64>: %w", version, ErrTampered)
	}
	aead, ok := k.keys[id]
	if !ok {
		return nil, fmt.Errorf("open: key id %q: %w", id, ErrUnknownKey)
	}
	ciphertext, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("open: %w", ErrTampered)
	}
	plain, err := aead.Open(nil, nil, ciphertext, bound(version+"."+id+".", associated))
	if err != nil {
		return nil, fmt.Errorf("open: %w", ErrTampered)
	}
	return plain, nil
}

// bound covers the version and key id too, so that they cannot be exchanged.
func bound(prefix string, associated []byte) []byte {
	return append([]byte(prefix), associated...)
}

// Stale reports whether a value was sealed with another key than the one that seals now, so that it should be sealed
// anew before that key is dropped.
func (k *Keyring) Stale(sealed string) bool {
	return !strings.HasPrefix(sealed, version+"."+k.first+".")
}

// String names the ids of the keys.
func (k *Keyring) String() string {
	if k == nil {
		return "keyring[]"
	}
	return "keyring[" + strings.Join(k.ids, ",") + "]"
}

// GoString keeps the keys out of %#v.
func (k *Keyring) GoString() string { return k.String() }
