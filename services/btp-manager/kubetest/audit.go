package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// marks is a namespace that does not exist. A read from it adds a mark to the audit log.
const marks = "kubetest-audit-marks"

// auditLimit is the maximum time until an event is in the file.
const auditLimit = time.Minute

// audit is the audit log of some users.
type audit struct {
	path  string
	marks atomic.Int64

	mu     sync.Mutex // guards the following fields
	read   int64      // the number of bytes of the log that are in events
	events []auditv1.Event
}

// Audit makes the kube-apiserver log each call of these users for Cluster.Audit: user, verb, object and status, without contents. A user's
// name is the argument of Cluster.As, or system:serviceaccount:<namespace>:<name>.
func Audit(users ...string) Option {
	return func(c *Cluster) error {
		policy := auditv1.Policy{
			TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
			Rules: []auditv1.PolicyRule{
				{Level: auditv1.LevelMetadata, Namespaces: []string{marks}},
				{Level: auditv1.LevelMetadata, Users: users},
				{Level: auditv1.LevelNone},
			},
			// A call is logged when it is answered; a watch is also logged at its start.
			OmitStages: []auditv1.Stage{auditv1.StageRequestReceived},
		}
		if len(users) == 0 {
			return errors.New("an audit log needs users: without them it would contain all calls")
		}
		content, err := yaml.Marshal(policy)
		if err != nil {
			return fmt.Errorf("audit policy: %w", err)
		}
		file := filepath.Join(c.dir, "audit-policy.yaml")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("audit policy: %w", err)
		}
		c.audit = &audit{path: filepath.Join(c.dir, "audit.log")}
		c.Environment.ControlPlane.GetAPIServer().Configure().
			Append("audit-policy-file", file).
			Append("audit-log-path", c.audit.path)
		return nil
	}
}

// Audit returns the calls of the audited users until now, in the order of the log. A finished call has the stage ResponseComplete; a watch
// also has ResponseStarted, at its start. To get only the calls of an action, take the number of events before it
// and skip those.
func (c *Cluster) Audit(t testing.TB) []auditv1.Event {
	t.Helper()
	if c.audit == nil {
		t.Fatal("this cluster has no audit log: start it with kubetest.Audit")
	}
	// The log is written after the answer. When a mark is in the log, so are all earlier calls.
	mark := client.ObjectKey{Namespace: marks, Name: fmt.Sprintf("mark-%d", c.audit.marks.Add(1))}
	if err := client.IgnoreNotFound(c.Client(t, client.Options{}).Get(t.Context(), mark, &corev1.ConfigMap{})); err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, auditLimit, true, func(context.Context) (bool, error) {
		var err error
		events, err = c.audit.all()
		return slices.ContainsFunc(events, func(e auditv1.Event) bool { return isMark(e) && e.ObjectRef.Name == mark.Name }), err
	})
	if err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	return slices.DeleteFunc(slices.Clone(events), isMark)
}

func isMark(e auditv1.Event) bool { return e.ObjectRef != nil && e.ObjectRef.Namespace == marks }

// all returns the events in the complete lines of the log, to which the server still writes. It reads each line once.
func (a *audit) all() ([]auditv1.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	log, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	content, err := io.ReadAll(io.NewSectionReader(log, a.read, math.MaxInt64-a.read))
	if err != nil {
		return nil, err
	}
	for {
		line, rest, complete := bytes.Cut(content, []byte("\n"))
		if !complete {
			return a.events, nil
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		a.events = append(a.events, e)
		a.read += int64(len(line)) + 1
		content = rest
	}
}
