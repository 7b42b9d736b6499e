//go:build linux

package installation

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// TestLoad_BrokerLies_IsNoted: a customer notices each answer that contradicts what it ordered.
func TestLoad_BrokerLies_IsNoted(t *testing.T) {
	t.Parallel()
	for lie, want := range map[string]string{
		noLie:                     "",
		"an update has no effect": `machineType is "Standard_D4_v3", want "Standard_D8_v3"`,
		"a removed instance":      "it exists after its removal",
		"no instance":             "get instance",
		"a removed binding":       "it exists after its removal",
		"an empty binding":        "it has no credentials",
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			broker := &lyingBroker{lie: lie, machine: machines[1]}
			server := httptest.NewServer(broker)
			t.Cleanup(server.Close)
			client, err := osbclient.New(osbclient.Config{BaseURL: server.URL, User: "u", Password: "p"}, server.Client())
			require.NoError(t, err)
			l := &Load{client: client, codes: map[string]int{}, builds: map[string]int{}}
			c := &customer{load: l, rnd: rand.New(rand.NewPCG(1, 1))}
			c.provision(t.Context())
			c.update(t.Context())
			c.bind(t.Context())
			c.deprovision(t.Context())
			if want == "" && len(l.wrong) > 0 || want != "" && !strings.Contains(strings.Join(l.wrong, "\n"), want) {
				t.Errorf("noted %q, want %q", l.wrong, want)
			}
		})
	}
}

const noLie = "no lie"

// lyingBroker completes all requests at once.
type lyingBroker struct {
	lie, machine    string
	instance, bound bool
}

func (b *lyingBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	exists, isBinding := &b.instance, strings.Contains(r.URL.Path, "/service_bindings/")
	body := `{"parameters": {"machineType": "` + b.machine + `"}}`
	if isBinding {
		if exists, body = &b.bound, `{"credentials": {"kubeconfig": "k"}}`; b.lie == "an empty binding" {
			body = `{"credentials": {}}`
		}
	}
	status := http.StatusOK
	switch r.Method {
	case http.MethodPut:
		*exists, status = true, http.StatusCreated
	case http.MethodPatch:
		if b.lie != "an update has no effect" {
			b.machine = machines[0]
		}
		body = "{}"
	case http.MethodDelete:
		*exists = isBinding && b.lie == "a removed binding" || !isBinding && b.lie == "a removed instance"
		body = "{}"
	case http.MethodGet:
		if !*exists || b.lie == "no instance" && !isBinding {
			status, body = http.StatusNotFound, "{}"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
