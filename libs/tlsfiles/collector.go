package tlsfiles

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	notAfterDesc = prometheus.NewDesc("keb_tls_certificate_not_after_timestamp_seconds",
		"When the certificate in the file that a variable names ends.", []string{"variable"}, nil)
	notBeforeDesc = prometheus.NewDesc("keb_tls_certificate_not_before_timestamp_seconds",
		"When the certificate in the file that a variable names began.", []string{"variable"}, nil)
)

// Collector tells when the certificates in the files of a process begin and end; register it with Prometheus. It reads the files when it
// is asked, so a renewal shows at once. While a file cannot be used the values are those of what was last good, which is what a server
// goes on with: also those of a certificate that has expired since. Of a chain it tells of the certificate that ends first, and of the
// authorities in a bundle of the one that ends last.
type Collector struct {
	files []measured

	mu sync.Mutex
	// last has what was last good, for each of files; nil before the first.
	last []*x509.Certificate
}

// measured is a file, and how to find the certificate in it that counts.
type measured struct {
	variable string
	read     func(now time.Time) (*x509.Certificate, error)
}

// NewCollector is for the files of these servers and clients, each under the prefix of its variables. Those without files are left out.
func NewCollector(servers map[string]Server, clients map[string]Client) *Collector {
	c := &Collector{}
	for prefix, s := range servers {
		c.pair(prefix, s.CertFile, s.KeyFile, x509.ExtKeyUsageServerAuth)
		c.bundle(prefix+clientCASuffix, s.ClientCAFile)
	}
	for prefix, s := range clients {
		c.pair(prefix, s.CertFile, s.KeyFile, x509.ExtKeyUsageClientAuth)
		c.bundle(prefix+caSuffix, s.CAFile)
	}
	c.last = make([]*x509.Certificate, len(c.files))
	return c
}

func (c *Collector) pair(prefix, certFile, keyFile string, usage x509.ExtKeyUsage) {
	if certFile == "" {
		return
	}
	cert, key := named{prefix + certSuffix, certFile}, named{prefix + keySuffix, keyFile}
	c.files = append(c.files, measured{cert.variable, func(now time.Time) (*x509.Certificate, error) {
		made, err := pair(cert, key, usage, now)
		if err != nil {
			return nil, err
		}
		return firstToEnd(made)
	}})
}

func (c *Collector) bundle(variable, path string) {
	if path == "" {
		return
	}
	c.files = append(c.files, measured{variable, func(now time.Time) (*x509.Certificate, error) {
		good, err := trusted(named{variable, path}, now)
		if err != nil {
			return nil, err
		}
		return slices.MaxFunc(good, byEnd), nil
	}})
}

// firstToEnd is what ends a chain.
func firstToEnd(chain tls.Certificate) (*x509.Certificate, error) {
	first := chain.Leaf
	for _, der := range chain.Certificate[1:] {
		next, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		first = slices.MinFunc([]*x509.Certificate{first, next}, byEnd)
	}
	return first, nil
}

func byEnd(a, b *x509.Certificate) int { return cmp.Compare(a.NotAfter.Unix(), b.NotAfter.Unix()) }

// Describe names the metrics.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- notAfterDesc
	descs <- notBeforeDesc
}

// Collect reads the files.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, file := range c.files {
		// Whoever uses the files says what is wrong with them, and once: a log line for each scrape helps nobody.
		if found, err := file.read(now); err == nil {
			c.last[i] = found
		}
		if found := c.last[i]; found != nil {
			metrics <- prometheus.MustNewConstMetric(notAfterDesc, prometheus.GaugeValue, float64(found.NotAfter.Unix()), file.variable)
			metrics <- prometheus.MustNewConstMetric(notBeforeDesc, prometheus.GaugeValue, float64(found.NotBefore.Unix()), file.variable)
		}
	}
}
