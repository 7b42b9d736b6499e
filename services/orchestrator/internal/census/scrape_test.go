package census

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A scrape reads the gauges. If it ends before the reading fails, Prometheus does not get keb_gauges_fresh, and no alert fires.
func TestScrapeTimeout_OfCompose_ExceedsReadTimeout(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../deploy/prometheus/prometheus.yml")
	require.NoError(t, err)
	var config struct {
		Global struct {
			ScrapeTimeout time.Duration `yaml:"scrape_timeout"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	if timeout := config.Global.ScrapeTimeout; timeout < readTimeout+time.Second {
		t.Errorf("scrape_timeout is %v, a reading may take %v", timeout, readTimeout)
	}
}
