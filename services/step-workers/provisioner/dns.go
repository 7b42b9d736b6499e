package provisioner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// DNSConfig is the domain of a runtime.
type DNSConfig struct {
	Domain string `json:"domain"`
	// Providers are omitted if the runtime uses those of Gardener.
	Providers []DNSProvider `json:"providers,omitempty"`
}

// DNSProvider writes the records of domains.
type DNSProvider struct {
	DomainsInclude []string `json:"domainsInclude"`
	Primary        bool     `json:"primary"`
	SecretName     string   `json:"secretName"`
	Type           string   `json:"type"`
}

// readDNSProviders returns the providers of new runtimes; none without a file.
func readDNSProviders(path string) ([]DNSProvider, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("KEB_RUNTIME_DNS_PROVIDERS_FILE: %w", err)
	}
	if data, err = yaml.ToJSON(data); err != nil {
		return nil, fmt.Errorf("KEB_RUNTIME_DNS_PROVIDERS_FILE: %s is not YAML: %w", path, err)
	}
	var file struct {
		Providers []DNSProvider `json:"providers"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("KEB_RUNTIME_DNS_PROVIDERS_FILE: %s: %w", path, err)
	}
	for i, p := range file.Providers {
		if len(p.DomainsInclude) == 0 || p.SecretName == "" || p.Type == "" {
			return nil, fmt.Errorf("KEB_RUNTIME_DNS_PROVIDERS_FILE: %s: providers[%d] needs domainsInclude, secretName and type", path, i)
		}
	}
	return file.Providers, nil
}
