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

// Collector reports the validity of the certificates in the files of a process to Prometheus. It reads the files for each scrape, so a
// renewal is visible immediately. While a file is invalid, the values are those of its last valid content, which a server continues to use,
// even if that has expired. For a chain it reports the certificate that expires first, and for a bundle the authority that expires last.
type Collector struct {
	files []measured

	mu sync.Mutex
	// last contains the last valid certificate of each file; nil before the first.
	last []*x509.Certificate
}

// measured is a file, and the function that selects its relevant certificate.
type measured struct {
	variable string
	read     func(now time.Time) (*x509.Certificate, error)
}

// NewCollector creates a collector for the files of servers and clients, by the prefix of their variables. It skips those without files.
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

// firstToEnd returns the certificate of a chain that expires first.
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

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- notAfterDesc
	descs <- notBeforeDesc
}

// Collect implements prometheus.Collector. It reads the files.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, file := range c.files {
		// The users of the files log their errors. A log line per scrape would not help.
		if found, err := file.read(now); err == nil {
			c.last[i] = found
		}
		if found := c.last[i]; found != nil {
			metrics <- prometheus.MustNewConstMetric(notAfterDesc, prometheus.GaugeValue, float64(found.NotAfter.Unix()), file.variable)
			metrics <- prometheus.MustNewConstMetric(notBeforeDesc, prometheus.GaugeValue, float64(found.NotBefore.Unix()), file.variable)
		}
	}
}
