package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Headers of the Standard Webhooks specification.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	// The sizes of a secret in bytes, before base64.
	minSecret, newSecret, maxSecret = 24, 32, 64
)

// NewSecret returns a random secret.
func NewSecret() string {
	key := make([]byte, newSecret)
	_, _ = rand.Read(key) // crypto/rand.Read never fails: it ends the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// CheckSecret returns an error unless a secret has the form of the Standard Webhooks specification. The error does not contain it.
func CheckSecret(secret string) error {
	_, err := decodeSecret(secret)
	return err
}

func decodeSecret(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, errors.New(`secret: must be "whsec_" and the base64 of 24 to 64 bytes`)
	}
	return key, nil
}

// sign returns the signature of a message: the HMAC of its id, its time and its body.
func sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
