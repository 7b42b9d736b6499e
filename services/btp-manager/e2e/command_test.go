package e2e_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
)

func TestHelp_EachSetting_IsListed(t *testing.T) {
	t.Parallel()
	help, code := call(t, "--help")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	// The description of a flag follows its name and precedes the next flag.
	about := map[string]string{}
	for _, part := range strings.Split(help, "\n  -")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		name, _, _ = strings.Cut(name, " ")
		about[name] = text
	}
	for _, s := range config.Settings() {
		text, ok := about[s.Flag]
		if !ok || !strings.Contains(text, strings.ReplaceAll(s.Meaning, "`", "")) {
			t.Errorf("--%s: %q, want its meaning: %s", s.Flag, text, s.Meaning)
		}
		if s.Type == "duration" && !strings.Contains(text, "(default "+s.Default) {
			t.Errorf("--%s: %q, want its default %s", s.Flag, text, s.Default)
		}
	}
	for _, other := range []string{"kubeconfig", "log-format", "log-level", "check-config"} {
		if about[other] == "" {
			t.Errorf("--%s is not listed", other)
		}
	}
}

func TestCommand_InvalidStart_ExitsWithCode1(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("a: ["), 0o600))
	for _, tt := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"a flag that there is not", []string{"--hard-delete-time-out=1m"}, []string{"hard-delete-time-out"}},
		{"a duration that is none", []string{"--ready-timeout=soon"}, []string{"ready-timeout", `"soon"`}},
		{"a duration that cannot be", []string{"--ready-timeout=-1s"}, []string{"ReadyTimeout", "-1s", "100ms"}},
		{"two at once", []string{"--ready-timeout=-1s", "--chart-namespace=A_B"}, []string{"ReadyTimeout", "ChartNamespace", `"A_B"`}},
		{"settings that do not fit together", []string{"--ready-timeout=1s", "--ready-check-interval=2s"}, []string{"ReadyCheckInterval", "ReadyTimeout"}},
		{"an address that is none", []string{"--metrics-bind-address=here"}, []string{"MetricsBindAddress", `"here"`}},
		{"a word too many", []string{"ready-timeout=1m"}, []string{"ready-timeout=1m", "flags"}},
		{"a log level that there is not", []string{"--log-level=loud"}, []string{"loud", "debug, info, warn or error"}},
		{"a log format that there is not", []string{"--log-format=xml"}, []string{"xml", "json or text"}},
		{"a kubeconfig that is not there", []string{"--kubeconfig=/does/not/exist"}, []string{"kubeconfig", "/does/not/exist"}},
		{"a kubeconfig that is none", []string{"--kubeconfig=" + garbage}, []string{"kubeconfig", garbage}},
		{"no kubeconfig outside of a cluster", nil, []string{"kubeconfig", "in-cluster"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			printed, code := call(t, tt.flags...)
			if _, problem, ok := strings.Cut("\n"+printed, "\nbtp-manager: "); code != 1 || !ok || strings.TrimSpace(problem) == "" {
				t.Errorf("exit code %d, want 1 and a problem at the end of what it prints:\n%s", code, printed)
			}
			for _, want := range tt.want {
				if !strings.Contains(printed, want) {
					t.Errorf("it does not name %q:\n%s", want, printed)
				}
			}
			if strings.Contains(printed, "goroutine ") {
				t.Errorf("it panics:\n%s", printed)
			}
			// A check validates the flags and reads nothing.
			checked, code := call(t, append([]string{"--check-config"}, tt.flags...)...)
			if (code == 0) != strings.Contains(tt.name, "kubeconfig") {
				t.Errorf("--check-config ends with code %d:\n%s", code, checked)
			}
			if code == 0 && checked != "" {
				t.Errorf("--check-config prints %q though all is well", checked)
			}
			if strings.Contains(checked, "\nW") || strings.Contains(printed, "\nW") || strings.HasPrefix(printed, "W") {
				t.Errorf("a library writes past the log:\n%s", printed)
			}
		})
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func TestCommand_PortInUse_Ends(t *testing.T) {
	s := newSystem(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := taken.Addr().String()
	for _, flag := range []string{"--metrics-bind-address=", "--health-probe-bind-address="} {
		t.Run(flag, func(t *testing.T) {
			flags := []string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false", "--kubeconfig=" + s.kubeconfig, flag + at}
			printed, code := call(t, flags...)
			if code != 1 || !strings.Contains(lastLine(printed), at) {
				t.Errorf("exit code %d, want 1 and a last line that names %s:\n%s", code, at, printed)
			}
		})
	}
	t.Run("a cluster that is out of reach", func(t *testing.T) {
		away := s.cluster.ServiceAccountConfig(t, kymaSystem, "btp-manager")
		at := "127.0.0.1:1" // this port is never assigned, unlike a free one
		away.Host = at
		printed, code := call(t, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--kubeconfig="+s.cluster.Kubeconfig(t, away))
		if code != 1 || !strings.Contains(lastLine(printed), "btp-manager: ") || !strings.Contains(lastLine(printed), at) {
			t.Errorf("exit code %d, want 1 and a last line that names %s:\n%s", code, at, printed)
		}
	})
}

func TestCommand_InvalidSettings_ChangeNothing(t *testing.T) {
	s := newSystem(t)
	p := s.start("--ready-check-interval=300ms")
	p.awaitUp()
	// The probes answer before the controllers have their metrics.
	for _, want := range []string{"btpmanager_build_info{", "controller_runtime_reconcile_total{", "go_goroutines "} {
		testkit.Eventually(t, waitTimeout, "/metrics has "+want, func() bool {
			code, page, err := get(t.Context(), p.metrics, "/metrics")
			return err == nil && code == http.StatusOK && strings.Contains(page, "\n"+want)
		})
	}
	if code, _, err := get(t.Context(), p.probes, "/elsewhere"); err != nil || code != http.StatusNotFound {
		t.Errorf("/elsewhere: %d, %v", code, err)
	}

	o := s.provisioned()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "sap-btp-manager"}, Data: map[string]string{
		"ReadyTimeout": "soon", "HardDeleteTimeOut": "1m", "LeaderElect": "false", "BlockDeletion": "true",
	}}
	s.create(settings)
	testkit.Eventually(t, waitTimeout, "the ConfigMap is refused", func() bool { return p.metric("btpmanager_config_rejected") == 1 })
	// The metric is updated before the log.
	for _, want := range []string{"settings refused", `\"soon\"`, "HardDeleteTimeOut", "--leader-elect"} {
		testkit.Eventually(t, waitTimeout, "the log names "+want, func() bool { return strings.Contains(p.log.String(), want) })
	}
	s.instance("")
	s.delete(o)
	s.awaitGone(o) // BlockDeletion is not in force
	s.nothingLeft()

	settings.Data = map[string]string{"BlockDeletion": "true"}
	require.NoError(t, s.Update(t.Context(), settings))
	testkit.Eventually(t, waitTimeout, "the ConfigMap is taken", func() bool {
		return p.metric("btpmanager_config_rejected") == 0 && p.metric("btpmanager_custom_config_applied") == 1
	})
	o = s.operator()
	s.await(o, v1alpha1.ReasonReconcileSucceeded)
	instance := s.instance("")
	s.delete(o)
	s.await(o, v1alpha1.ReasonNotCleaned)
	s.delete(instance)
	s.awaitGone(o)
	if strings.Contains(p.log.String(), "a-client-secret") {
		t.Error("the log holds the client secret")
	}
	if strings.Contains(p.log.String(), "forbidden") {
		t.Error("the chart's roles do not allow something")
	}
	p.terminate()
}
