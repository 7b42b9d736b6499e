// Package credentials reads the Secret sap-btp-manager, which the broker writes into the cluster. It contains the credentials of the
// Service Manager and the ID of the cluster (docs/contracts/btp-manager.md#secret).
package credentials

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// SecretName is the default name of the Secret.
const SecretName = "sap-btp-manager" //nolint:gosec // the name of a Secret is no secret

// The keys of the Secret. All but KeyNamespace require a value (docs/contracts/btp-manager.md#secret).
const (
	KeyClientID     = "clientid"
	KeyClientSecret = "clientsecret"
	KeySMURL        = "sm_url"
	KeyTokenURL     = "tokenurl"
	KeyClusterID    = "cluster_id"
	KeyNamespace    = "credentials_namespace"
)

// Other keys for which the operand's chart has a value.
const (
	keyTokenURLSuffix = "tokenurlsuffix" //nolint:gosec // the name of a key is no secret
	keyTLSCert        = "tls.crt"
	keyTLSKey         = "tls.key"
)

// Credentials is the content of the Secret. In every printed, logged or marshalled form it shows only the cluster's ID and the
// namespace.
type Credentials struct {
	// ClientID and ClientSecret are the credentials of the Service Manager's client.
	ClientID, ClientSecret string
	// SMURL is the address of the Service Manager.
	SMURL string
	// TokenURL is the address of the token endpoint, without the path.
	TokenURL string
	// ClusterID is the cluster's ID at the Service Manager.
	ClusterID string
	// Namespace is where the operand stores its credentials. Empty means the chart's namespace.
	Namespace string
	// Extra contains the other keys of the Secret, for the operand's Secret. It is nil if there are none.
	Extra map[string][]byte
}

// Values are the chart's values for the credentials:
//
//	cluster.id
//	manager.management_namespace                          only with a namespace
//	manager.secret.{clientid,clientsecret,sm_url,tokenurl}
//	manager.secret.tokenurlsuffix, manager.secret.tls.{crt,key}  only when the Secret has them
//	manager.secret.extra                                  the other keys, each with its value in base64; only with any
func (c Credentials) Values() map[string]any {
	secret := map[string]any{
		KeyClientID:     c.ClientID,
		KeyClientSecret: c.ClientSecret,
		KeySMURL:        c.SMURL,
		KeyTokenURL:     c.TokenURL,
	}
	tls, extra := map[string]any{}, map[string]any{}
	for key, value := range c.Extra {
		switch key {
		case keyTokenURLSuffix:
			secret[keyTokenURLSuffix] = string(value)
		case keyTLSCert:
			tls["crt"] = string(value)
		case keyTLSKey:
			tls["key"] = string(value)
		default:
			extra[key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	if len(tls) > 0 {
		secret["tls"] = tls
	}
	if len(extra) > 0 {
		secret["extra"] = extra
	}
	manager := map[string]any{"secret": secret}
	if c.Namespace != "" {
		manager["management_namespace"] = c.Namespace
	}
	return map[string]any{
		"manager": manager,
		"cluster": map[string]any{"id": c.ClusterID},
	}
}

// String returns the cluster, the namespace and the extra keys, and no credential.
func (c Credentials) String() string {
	return fmt.Sprintf("credentials of cluster %q (namespace %q, extra keys %q)", c.ClusterID, c.Namespace, slices.Sorted(maps.Keys(c.Extra)))
}

// GoString returns String.
func (c Credentials) GoString() string { return c.String() }

// Format writes String for every verb: some verbs print the fields of a struct that has only String.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue implements slog.LogValuer with String.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalLog implements logr.Marshaler with String.
func (c Credentials) MarshalLog() any { return c.String() }

// MarshalText implements encoding.TextMarshaler with String, for JSON and YAML.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
