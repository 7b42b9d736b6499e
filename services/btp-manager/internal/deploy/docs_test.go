package deploy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kyma-project/keb/libs/testkit"
)

//go:generate go test -count=1 -run ^TestPermissions_Documentation_MatchesChart$ . -update

const (
	page  = repository + "docs/btp-manager.md"
	begin = "<!-- permissions:begin -->\n"
	end   = "<!-- permissions:end -->"

	everywhere, inNamespace = "everywhere", "`kyma-system`"
)

// reasons explain the rules of BTP Manager, which are identified by place, resources and, if they have names, the word "named", and by "to
// remove" if they allow nothing else.
func reasons() map[string]string {
	const (
		applied = "These objects of the operand's chart are made, brought back, and removed, by name."
		removed = "These objects of the original manager's operand are removed, by name."
		watched = "A change of these objects is seen at once. Kubernetes cannot narrow that to names."
		inChart = "What the operand's chart has here is made, watched, and removed."
	)
	return map[string]string{
		everywhere + " btpoperators":            "They may be in any namespace. Their finalizer is patched in and out.",
		everywhere + " btpoperators/status":     "State, condition and progress are written there.",
		everywhere + " events of events.k8s.io": "Events stand where the BtpOperator stands that they are about; a repetition is added to the first one.",
		everywhere + " serviceinstances, servicebindings": "The deprovisioning counts, deletes and releases them. " +
			"The operand and its users get the rest: Kubernetes allows grants of own permissions only.",
		everywhere + " serviceinstances/status, servicebindings/status":         "Granted to the operand.",
		everywhere + " serviceinstances/finalizers, servicebindings/finalizers": "Granted to the operand.",
		everywhere + " secrets": "The credentials, the certificates, and the Secrets of bindings in a soft delete. All verbs are granted to the operand, which " +
			"writes the Secrets of bindings.",
		everywhere + " events":                                                         "Granted to the operand; the leader election writes them too.",
		everywhere + " customresourcedefinitions named":                                applied,
		everywhere + " clusterroles named":                                             applied,
		everywhere + " clusterrolebindings named":                                      applied,
		everywhere + " clusterroles named, to remove":                                  removed,
		everywhere + " clusterrolebindings named, to remove":                           removed,
		everywhere + " mutatingwebhookconfigurations named":                            applied,
		everywhere + " validatingwebhookconfigurations named":                          applied,
		everywhere + " customresourcedefinitions":                                      watched,
		everywhere + " clusterroles, clusterrolebindings":                              watched,
		everywhere + " mutatingwebhookconfigurations, validatingwebhookconfigurations": watched,
		inNamespace + " leases":                                                        "The leader election; granted to the operand for its own.",
		inNamespace + " configmaps":                                                    "The settings are read, the inventory is made and removed, and what the operand's chart has is made, watched, and removed.",
		inNamespace + " configmaps named":                                              "The inventory of what was applied.",
		inNamespace + " services, serviceaccounts":                                     inChart,
		inNamespace + " deployments":                                                   inChart,
		inNamespace + " networkpolicies":                                               inChart,
		inNamespace + " roles, rolebindings":                                           inChart,
	}
}

func TestPermissions_Documentation_MatchesChart(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, opened := strings.Cut(string(raw), begin)
	documented, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no markers for the table", page)
	}
	want := permissions(t)
	if testkit.Update() {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o600))
		return
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("run `make generate`: %s", diff)
	}
}

// permissions formats the rules of the roles in their order.
func permissions(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| Where | What | Verbs | Why |\n|---|---|---|---|\n")
	why := reasons()
	access := managerAccess(t)
	for _, part := range []struct {
		where string
		rules []rbacv1.PolicyRule
	}{{everywhere, access.cluster}, {inNamespace, access.namespace}} {
		for _, r := range part.rules {
			key := part.where + " " + strings.Join(r.Resources, ", ")
			what := quoted(r.Resources)
			if slices.Contains(r.APIGroups, "events.k8s.io") {
				key += " of events.k8s.io"
				what += " of `events.k8s.io`"
			}
			if len(r.ResourceNames) > 0 {
				key += " named"
				what += " " + quoted(r.ResourceNames)
			}
			if slices.Equal(r.Verbs, []string{"get", "delete"}) {
				key += ", to remove"
			}
			reason, ok := why[key]
			if !ok {
				t.Errorf("no reason for the rule %q", key)
			}
			delete(why, key)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", part.where, what, strings.Join(r.Verbs, ", "), reason)
		}
	}
	for key := range why {
		t.Errorf("a reason for %q, but no such rule", key)
	}
	return b.String() + "\n"
}

func quoted(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
