// Package seal encrypts secrets for storage, with authenticated encryption. Keys can
// be replaced while values of the old keys can still be decrypted.
//
// A sealed value has the form "v1.<key id>.<base64>". It is encrypted with AES-256-GCM
// and a random nonce, and bound to its owner: a value copied to another row does not open.
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
	// ErrUnknownKey means that the keyring does not contain the key of a sealed value.
	ErrUnknownKey = errors.New("sealed with an unknown key")
	// ErrTampered means that a value is damaged, or belongs to another owner.
	ErrTampered = errors.New("sealed value is damaged or belongs to another owner")
)

// Keyring holds the keys. It is safe for concurrent use, and prints only the ids of its keys.
type Keyring struct {
	first string
	ids   []string
	keys  map[string]cipher.AEAD
}

// ParseKeyring parses "id1:base64key,id2:base64key". The first key seals, and all keys open. To replace a key, put the new one first, seal
// all values again (see Stale), then remove the old one. An id has 1 to 64 letters, digits, hyphens or underscores. A key has 32
// bytes, in standard or URL base64. Errors contain no keys.
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
		// An invalid id may be a misplaced key, so the error does not contain it.
		return fmt.Errorf("the id: want 1 to %d letters, digits, hyphens or underscores", maxIDSize)
	}
	if _, twice := k.keys[id]; twice {
		return fmt.Errorf("the id %q is duplicated", id)
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

// NewKey returns a random key, in the form that ParseKeyring expects after an id.
func NewKey() string {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // crypto/rand.Read never fails: it ends the program instead
	return base64.StdEncoding.EncodeToString(key)
}

// Seal encrypts plain with the first key and binds it to associated, for example the instance id and the name of the credentials. The
// value does not contain associated, so Open needs it again. A key can seal 2^32 values.
func (k *Keyring) Seal(plain, associated []byte) (string, error) {
	aead, ok := k.keys[k.first]
	if !ok {
		return "", errors.New("seal: the keyring is empty")
	}
	prefix := version + "." + k.first + "."
	sealed := aead.Seal(nil, nil, plain, bound(prefix, associated)) //nolint:gosec // this AEAD generates a random nonce
	return prefix + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open decrypts a sealed value. Its errors wrap ErrUnknownKey or ErrTampered.
func (k *Keyring) Open(sealed string, associated []byte) ([]byte, error) {
	v, rest, _ := strings.Cut(sealed, ".")
	id, encoded, ok := strings.Cut(rest, ".")
	// The base64 decoder ignores line breaks; a sealed value has none.
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

// bound includes the version and the key id, so that they cannot be exchanged.
func bound(prefix string, associated []byte) []byte {
	return append([]byte(prefix), associated...)
}

// Stale reports whether a value was sealed with a key other than the first one. Such values must be sealed again before their key is
// removed.
func (k *Keyring) Stale(sealed string) bool {
	return !strings.HasPrefix(sealed, version+"."+k.first+".")
}

// String returns the ids of the keys.
func (k *Keyring) String() string {
	if k == nil {
		return "keyring[]"
	}
	return "keyring[" + strings.Join(k.ids, ",") + "]"
}

// GoString omits the keys from %#v.
func (k *Keyring) GoString() string { return k.String() }
