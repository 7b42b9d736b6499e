package up

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
)

// screen is written by the system and read by the test.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// runUntil runs the system until the screen shows a text, and then stops it.
func runUntil(t *testing.T, cfg Config, text string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &screen{}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, out, out) }()
	var err error
	testkit.Eventually(t, 90*time.Second, text, func() bool {
		select {
		case err = <-ended:
			ended <- err
			t.Fatalf("ended early: %v\n%s", err, out)
		default:
		}
		return strings.Contains(out.String(), text)
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("did not stop well: %v\n%s", err, out)
	}
	return out.String()
}

func TestTheSampleIsProvisionedAndFoundAgain(t *testing.T) {
	cfg := validConfig(t)
	cfg.LandscapeAddr = "127.0.0.1:0"
	cfg.Demo, cfg.Fast, cfg.Program = true, true, "keb"
	told := runUntil(t, cfg, "The sample runtime is provisioned")
	for _, want := range []string{
		"KEB is up.", "plan azure", "start/Starting succeeded", "create_runtime/Check_Runtime succeeded",
		"check_kyma/Check_Cluster_Configuration succeeded", "post_actions/AVS_Tags succeeded",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("nothing is told of %q:\n%s", want, told)
		}
	}
	runUntil(t, cfg, "The sample runtime is there already: instance "+SampleInstance)
}
