package seal_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
)

type sealIn struct {
	Keyring, Nonce, Associated, Sealed string
	PlainBase64                        []byte
}

type sealOut struct {
	Sealed      string  `json:"sealed,omitempty"`
	PlainBase64 *[]byte `json:"plainBase64,omitempty"`
	Error       string  `json:"error,omitempty"`
}

func TestVectors_SealedValues_AreOpened(t *testing.T) {
	t.Parallel()
	testkit.Vectors(t, "sealed.json", func(in sealIn) sealOut {
		keys, err := seal.ParseKeyring(in.Keyring)
		require.NoError(t, err)
		text := in.Sealed
		if in.Nonce != "" {
			nonce, err := hex.DecodeString(in.Nonce)
			require.NoError(t, err)
			text = sealAsDescribed(t, in.Keyring, nonce, in.PlainBase64, in.Associated)
		}
		plain, err := keys.Open(text, []byte(in.Associated))
		switch {
		case errors.Is(err, seal.ErrUnknownKey):
			return sealOut{Error: "unknown key"}
		case errors.Is(err, seal.ErrTampered):
			return sealOut{Error: "damaged"}
		}
		require.NoError(t, err)
		if in.Nonce == "" {
			return sealOut{PlainBase64: &plain}
		}
		require.Equal(t, string(in.PlainBase64), string(plain))
		return sealOut{Sealed: text}
	})
}

// A value that Seal returns is that of the description for the nonce that Seal has chosen.
func TestVectors_Seal_FollowsTheDescription(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.ReadVectors[sealIn, sealOut](t, "sealed.json") {
		if c.In.Nonce == "" {
			continue
		}
		keys, err := seal.ParseKeyring(c.In.Keyring)
		require.NoError(t, err)
		text, err := keys.Seal(c.In.PlainBase64, []byte(c.In.Associated))
		require.NoError(t, err)
		raw, err := base64.RawURLEncoding.DecodeString(text[strings.LastIndex(text, ".")+1:])
		require.NoError(t, err)
		require.Equal(t, sealAsDescribed(t, c.In.Keyring, raw[:12], c.In.PlainBase64, c.In.Associated), text, c.Name)
	}
}

// sealAsDescribed seals with the first key and a fixed nonce, as docs/wire-contract.md describes it.
func sealAsDescribed(t *testing.T, ring string, nonce, plain []byte, associated string) string {
	t.Helper()
	first, _, _ := strings.Cut(ring, ",")
	id, encoded, _ := strings.Cut(first, ":")
	key, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	prefix := "v1." + id + "."
	return prefix + base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, []byte(prefix+associated)))
}

func TestVectors_Keyrings_AreParsed(t *testing.T) {
	t.Parallel()
	type out struct {
		IDs   []string `json:"ids,omitempty"`
		Error bool     `json:"error,omitempty"`
	}
	testkit.Vectors(t, "keyrings.json", func(in struct{ Keyring string }) out {
		keys, err := seal.ParseKeyring(in.Keyring)
		if err != nil {
			return out{Error: true}
		}
		ids := strings.Split(strings.TrimSuffix(strings.TrimPrefix(keys.String(), "keyring["), "]"), ",")
		sealed, err := keys.Seal(nil, nil)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(sealed, "v1."+ids[0]+"."), "the first key seals")
		return out{IDs: ids}
	})
}
