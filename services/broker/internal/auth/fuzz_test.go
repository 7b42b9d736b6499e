package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/broker/internal/auth"
)

func FuzzKeySetFile(f *testing.F) {
	f.Add(newKeys(f).set)
	f.Add([]byte(`{"keys":[]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"Q0FOQVJZ"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"","e":"AQAB"},null]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, content []byte) {
		name := filepath.Join(t.TempDir(), "keys.json")
		require.NoError(t, os.WriteFile(name, content, 0o600))
		k := keys{}
		_, err := auth.New(t.Context(), auth.Config{Issuer: issuer, Audience: audience, KeySetFile: name}, k.clock)
		if err != nil && !strings.HasPrefix(err.Error(), "bearer tokens: read key set: ") {
			t.Errorf("error %v does not describe the problem", err)
		}
	})
}

func FuzzToken(f *testing.F) {
	k := newKeys(f)
	j, err := auth.New(f.Context(), auth.Config{Issuer: issuer, Audience: audience, KeySetFile: k.file(f), Scope: "broker:write"}, k.clock)
	require.NoError(f, err)
	good := k.sign(f, jwt.SigningMethodRS256, k.private, k.claims(nil))
	f.Add(good)
	f.Add(good[:len(good)-8])
	f.Add(k.sign(f, jwt.SigningMethodHS256, k.set, k.claims(nil)))
	f.Add(k.sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, k.claims(nil)))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := authenticate(t, j, "Bearer "+token)
		// The encoding of a signature's end is ambiguous; that of the signed part is not.
		signed := token[:max(0, strings.LastIndexByte(token, '.'))]
		if err == nil && (p.Name != "platform" || strings.TrimSpace(signed) != good[:strings.LastIndexByte(good, '.')]) {
			t.Errorf("an unsigned token authenticates %+v", p)
		}
	})
}
