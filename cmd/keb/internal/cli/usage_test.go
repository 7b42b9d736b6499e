package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsageErrors_EachCommand_OneLineAndExitTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, bad := filepath.Join(dir, "empty"), filepath.Join(dir, "cases.yaml")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("cases: [{name: a}]"), 0o600))
	for line, want := range map[string]string{
		"provison":                   `keb: unknown command "provison" for "keb"`,
		"provision":                  "keb: provision needs -f FILE; see examples/requests",
		"watch":                      "keb: watch needs the id of an operation; see keb watch --help",
		"watch a --every 1ms":        "keb: --every must be at least 50ms",
		"watch a --every soon":       `keb: invalid argument "soon" for "--every" flag: time: invalid duration "soon"`,
		"deprovision i -c c-1":       "keb: give either the instance or flags that select the runtime, not both",
		"kubeconfig -g ga":           "keb: no runtime selected: give its instance, or one of --subaccount, --instance-id, --runtime-id, --shoot",
		"facts replay --since later": `keb: --since "later": must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h`,
		"forward":                    "keb: forward needs PORT=HOST:PORT",
		"healthcheck":                "keb: healthcheck needs a URL",
		"nats":                       "needs a command: config",
		"nats foo":                   `no command "foo"; allowed: config`,
		"secrets":                    "needs a command: init, show",
		"process":                    "needs a command: apply, check, rehearse, remove, rollback, versions",
		"process check a":            `keb: check: unexpected argument "a"; see keb process check --help`,
		"worker":                     "needs a command: check",

		"worker check":                                           "needs --worker NAME",
		"worker check --worker a":                                "needs the command that starts the worker after --, or --attach",
		"worker check --worker A -- true":                        "--worker: worker name",
		"worker check --worker a --attach -- true":               "leave out",
		"worker check --worker a --case " + bad + " -- true":     "cases[0]",
		"worker check --worker a --case " + bad + ".not -- true": "--case: open",
		"worker check --worker a -- /no/such/program":            "no such program",
		"worker check --worker a --check nothing -- true":        `check "nothing"`,
		"worker check --worker a --step A.B -- true":             `step "A.B"`,

		"access":       "keb: keb access needs a command: token",
		"watch --=x a": "keb: bad flag syntax: --=x",
		"worker check --worker a --junit /no/dir/x -- true": "keb: --junit: there is no folder /no/dir",

		"operation a skip b":              `keb: operation: unexpected argument "b"; see keb operation --help`,
		"operation x kill":                `keb: operation: unknown action "kill"; allowed: cancel, retry, skip`,
		"operation x skip":                "keb: skip needs --step with the name of the current step; keb operation x shows it",
		"operation x retry --step A":      "keb: --step is only allowed with skip",
		"operation x cancel --from s":     "keb: --from and --preview are only allowed with retry",
		"operation x --preview":           "keb: --from and --preview are only allowed with retry",
		"operation x -o custom=A:b":       "keb: --output custom is only allowed for lists; keb operation supports text and json",
		"operations --sate failed":        "keb: unknown flag: --sate",
		"operations -o yaml":              `keb: --output "yaml" is not a format; allowed: text, json`,
		"operations --state running":      `keb: --state "running" is not a state; allowed: pending, in progress, succeeded, incomplete, failed, cancelled`,
		"operations --state failed,fine":  `keb: --state "fine" is not a state`,
		"operations --type delete":        `keb: --type "delete" is not an operation type; allowed: provision, deprovision, update, upgradeKyma, upgradeCluster`,
		"operations --page 0":             "keb: --page must be at least 1, not 0",
		"operations --page-size 0":        "keb: --page-size must be at least 1",
		"operations --since yesterday":    `keb: --since "yesterday": must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h`,
		"operations --waiting failing,go": `keb: --waiting "go" is not a waiting reason; allowed: executing, slow, polling, event, failing, no_answer, no_worker, held, limited, instance_busy, admission`,

		"operations --yes":                                        "keb: --reason, --rate, --from, --yes and --detach are only allowed with --do",
		"operations --do redo --state failed":                     `keb: --do "redo" is not an action; allowed: retry, cancel, skip, hold, resume`,
		"operations --do retry --reason r":                        "keb: --do needs a filter, for example --state failed",
		"operations --do retry --state failed":                    "keb: --do needs --reason",
		"operations --do skip --state failed --reason r":          "keb: --do skip needs --step with the name of the step",
		"operations --do cancel --plan azure --reason r --from x": "keb: --from is only allowed with --do retry",
		"operations --do hold --plan azure --reason r --rate 1":   "keb: --rate and --detach are not allowed with --do hold",
		"operations --do retry --plan azure --reason r --rate x":  `keb: --rate "x": must be a number of operations per second, for example 20/s`,

		"operations --do cancel --plan azure --reason r --page-size 10": "keb: --page-size is not allowed with --do, which acts on all operations that match",
		"operations --do cancel --plan azure --reason r --page 2":       "keb: --page is not allowed with --do",
		"operations --do cancel --plan azure --reason r --sort oldest":  "keb: --sort is not allowed with --do",
		"operations --do retry --plan azure --reason r --rate nan":      `keb: --rate "nan": must be a number of operations per second`,
		"operations --do retry --plan azure --reason r --rate inf/s":    `keb: --rate "inf/s": must be a number of operations per second`,

		"operations --state failed --plan= --do cancel --reason r": "keb: --plan has no value",
		"operations --state failed --plan , --do cancel":           "keb: --plan has no value",
		"operations --since= ":                                     "keb: --since has no value",
		"hold create --plan= --worker edp --reason x":              "keb: --plan has no value",
		"hold create --plan azure --until= --reason x":             "keb: --until has no value",
		"deprovision -s sub --shoot=":                              "keb: --shoot has no value",
		"runtimes --plan=":                                         "keb: --plan has no value",
		"runtimes --plan a,,b":                                     "keb: --plan has no value",
		"worker pin edp 1.1 --plan= --type update --reason x":      "keb: --plan has no value",
		"operations --ca-file=":                                    "keb: --ca-file has no value",
		"operations --operator-addr=":                              "keb: --operator-addr has no value",
		"access token --name=":                                     "keb: --name has no value",
		"upgrade kyma -t all --max-failures=":                      "keb: --max-failures has no value",
		"job trial-expiry --plans=":                                "keb: --plans has no value",

		"hold create --reason x":                            "keb: hold create needs a scope, for example --worker; see keb hold create --help",
		"hold create --plan azure":                          "keb: hold create needs --reason",
		"hold create --plan azure --reason x --until later": `keb: --until "later": must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h`,

		"runtimes -S fine":                    `keb: --state "fine" is not a runtime state; allowed: succeeded, provisioning,`,
		"runtimes --events=some":              `keb: --events "some" is not allowed; allowed: all, info, error, none`,
		"runtimes --kyma-config":              "keb: --kyma-config and --cluster-config need -o json or -o custom",
		"runtimes -o custom=x":                `keb: --output custom: column "x": must be HEADER:JSONPATH`,
		"runtimes --token-file /nowhere/file": "keb: --token-file, KEB_TOKEN_FILE: open /nowhere/file: no such file",
		"runtimes --token-file " + empty:      "is empty",

		"taskrun true":                    "keb: taskrun needs -t TARGET, for example -t all",
		"taskrun -t all":                  "keb: taskrun needs a command",
		"taskrun -t , true":               "keb: --target has no value",
		"taskrun -t all -e , true":        "keb: --target-exclude has no value",
		"taskrun -t plan=azure, true":     `keb: --target "plan=azure,": has an empty condition`,
		"taskrun -t color=red true":       `keb: --target "color=red": unknown condition "color=red"`,
		"taskrun -t kubernetes=1.33 true": "keb: kubernetes= is only allowed with upgrade: the list of runtimes does not have the version of Kubernetes",

		"upgrade":                                           "needs a command: cluster, kyma",
		"upgrade everything":                                `no command "everything"`,
		"upgrade kyma":                                      "keb: upgrade kyma needs -t TARGET, for example -t all",
		"upgrade kyma all":                                  `keb: kyma: unexpected argument "all"`,
		"upgrade kyma -t plans=azure":                       `keb: --target "plans=azure": unknown condition "plans=azure"; allowed: all, account=`,
		"upgrade kyma -t azure":                             `keb: --target "azure": unknown condition "azure"`,
		"upgrade kyma -t plan=":                             `keb: --target "plan=": plan has no value`,
		"upgrade kyma -t plan=a,plan=b":                     `keb: --target "plan=a,plan=b": plan is duplicated`,
		"upgrade kyma -t kyma=2,kyma=3":                     `keb: --target "kyma=2,kyma=3": kyma is duplicated`,
		"upgrade kyma -t account=(":                         `keb: --target "account=(": account is not a valid regular expression`,
		"upgrade kyma -t all -e all":                        "keb: --target-exclude: the condition all is only allowed in --target",
		"upgrade kyma -t all --parallel-workers":            "keb: flag needs an argument: --parallel-workers",
		"upgrade kyma -t all --parallel-workers 0":          "keb: --parallel-workers 0 must be at least 1",
		"upgrade kyma -t all --kubernetes-version 1.31.4":   "keb: unknown flag: --kubernetes-version",
		"upgrade cluster -t all --version 2.20.1":           "keb: unknown flag: --version",
		"upgrade kyma -t all --canary -1":                   "keb: --canary -1 must be at least 1",
		"upgrade kyma -t all --canary 1 --canary-then hope": `keb: --canary-then "hope": allowed: approval, success`,
		"upgrade kyma -t all --canary-then success":         "keb: --canary-then needs --canary with the number of runtimes",
		"upgrade kyma -t all --max-failures 5.5":            `keb: --max-failures "5.5": must be a number from 0 to 1000000, or a percentage`,

		"orchestrations -w":                                  "keb: --watch needs the id of an orchestration",
		"orchestrations -s sleeping":                         `keb: --state "sleeping" is not a state; allowed: pending, in progress, retrying, paused, canceling`,
		"orchestrations --page 0":                            "keb: --page must be at least 1, not 0",
		"orchestrations --page-size 0":                       "keb: --page-size must be at least 1",
		"orchestrations x -o custom=A:b":                     "keb: --output custom is only allowed for lists, not with orchestrations show",
		"orchestrations o-1 -s failed":                       "keb: --state is not allowed with orchestrations show",
		"orchestrations o-1 stop":                            `keb: orchestrations: unknown action "stop"; allowed: operations, pause, resume, approve, cancel, retry`,
		"orchestrations o-1 list":                            `keb: orchestrations: unknown action "list"`,
		"orchestrations o-1 retry now":                       `keb: orchestrations: unexpected argument "now"`,
		"orchestrations o-1 pause --now":                     "keb: --now is only allowed with retry",
		"orchestrations o-1 cancel --now":                    "keb: --now is only allowed with retry",
		"orchestrations o-1 cancel --operation x":            "keb: --operation is only allowed with operations and retry",
		"orchestrations o-1 operations -s canceling":         `keb: --state "canceling" is not a state; allowed: pending, in progress, retrying, succeeded`,
		"orchestrations o-1 ops --operation x --operation y": "keb: --operation is only allowed once",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := run(t, "", strings.Fields(line)...)
			if got.code != 2 || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 || got.out != "" {
				t.Errorf("code %d, error %q, output %q; want 2 and %q in one line", got.code, got.err, got.out, want)
			}
		})
	}
	for _, nothing := range []string{" ", " ,", ", ,"} {
		expect(t, run(t, "", "upgrade", "kyma", "-t", nothing), 2, "", fmt.Sprintf("keb: --target %q: has no condition\n", nothing))
	}
}

func TestWorkerCheck_List_PrintsChecks(t *testing.T) {
	t.Parallel()
	r := run(t, "", "worker", "check", "--list")
	if r.code != 0 || !strings.Contains(r.out, "result-first") || strings.Count(r.out, "\n") < 30 {
		t.Errorf("exit code %d, %q, %q", r.code, r.out, r.err)
	}
}
