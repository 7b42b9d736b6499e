package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/service"
)

// tasks holds the flags of keb taskrun.
type tasks struct {
	*options
	targets, excluded []string
	parallel          int
	timeout           time.Duration
	keep              string

	client *broker.Client
	mu     sync.Mutex // guards the output
}

func newTaskrun(o *options) *cobra.Command {
	t := &tasks{options: o}
	cmd := &cobra.Command{
		Use:   "taskrun -t TARGET COMMAND [ARG...]",
		Short: "Run a command for each of many runtimes",
		Long: `Run a command for each of many runtimes, some in parallel. Targets have the form described in keb upgrade --help, without kubernetes=. One argument is a line for the shell,
which fails if a command of a pipe does (with bash, or a shell that knows pipefail); several are a program and its arguments. The environment of the command has KUBECONFIG, the path of the kubeconfig of its
runtime, and INSTANCE_ID, RUNTIME_ID, SHOOT_NAME, GLOBALACCOUNT_ID, SUBACCOUNT_ID, PLAN_NAME and REGION. Its output is printed
line by line, each with the shoot name as prefix. The exit code is 0 if all commands succeeded.`,
		Example: "  keb taskrun -t plan=azure,region=^west -p 8 'kubectl get nodes -o name | wc -l'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("taskrun needs a command; see keb taskrun --help")
			}
			return t.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command belong to the command
	flags.StringArrayVarP(&t.targets, "target", "t", nil, "runtimes to select, see keb upgrade --help")
	flags.StringArrayVarP(&t.excluded, "target-exclude", "e", nil, "runtimes to exclude")
	flags.IntVarP(&t.parallel, "parallelism", "p", 4, "maximum number of commands in parallel")
	flags.DurationVar(&t.timeout, "timeout", time.Hour, "timeout of each command")
	flags.StringVar(&t.keep, "kubeconfig-dir", "", "folder that keeps the kubeconfigs; without it they are deleted")
	return cmd
}

// task is the command for one runtime and its result.
type task struct {
	runtime
	err error
}

func (t *tasks) run(ctx context.Context, command []string) error {
	switch {
	case len(t.targets) == 0:
		return usageError("taskrun needs -t TARGET, for example -t all; see keb upgrade --help")
	case t.parallel < 1:
		return usageError("--parallelism %d must be at least 1", t.parallel)
	case t.timeout <= 0:
		return usageError("--timeout must be positive")
	}
	found, err := t.find(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no runtime matches; keb runtimes lists them")
	}
	if t.client, err = t.brokerClient(); err != nil {
		return err
	}
	dir := t.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "keb-taskrun-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(t.parallel)
	for _, one := range found {
		group.Go(func() error {
			one.err = t.one(ctx, &one.runtime, dir, command)
			return nil
		})
	}
	_ = group.Wait() // each task records its error
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.report(found)
}

// find returns the runtimes that the targets select.
func (t *tasks) find(ctx context.Context) ([]*task, error) {
	include, err := parseTargets("--target", t.targets)
	if err != nil {
		return nil, err
	}
	exclude, err := parseTargets("--target-exclude", t.excluded)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(slices.Concat(include, exclude), func(t operator.Target) bool { return t.KubernetesVersion != "" }) {
		return nil, usageError("kubernetes= is only allowed with upgrade: the list of runtimes does not have the version of Kubernetes")
	}
	items, err := t.runtimes(ctx, url.Values{"op_detail": {"last"}})
	if err != nil {
		return nil, err
	}
	var found []*task
	plans := map[string]bool{"": true}
	for _, raw := range items {
		var r runtime
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("list runtimes: %w", err)
		}
		plans[r.ServicePlanName] = true
		if r.RuntimeID != "" && selected(include, &r) && !selected(exclude, &r) {
			found = append(found, &task{runtime: r})
		}
	}
	for _, target := range slices.Concat(include, exclude) {
		if plans[target.PlanName] {
			continue
		}
		// A plan without runtimes may exist.
		known, err := t.planNames(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			// The catalog requires user and password, which a caller with a token may not have.
			if _, err := fmt.Fprintf(t.Err, "keb: no runtime has the plan %q, and the catalog cannot be read: %s\n", target.PlanName, service.OneLine(err)); err != nil {
				return nil, err
			}
		case !slices.Contains(known, target.PlanName):
			return nil, usageError("unknown plan %q; known: %s", target.PlanName, strings.Join(known, ", "))
		}
	}
	return found, nil
}

// selected reports whether one of the targets matches the runtime.
func selected(targets []operator.Target, r *runtime) bool {
	for i := range targets {
		if like(&targets[i], r) {
			return true
		}
	}
	return false
}

func like(t *operator.Target, r *runtime) bool {
	for _, exact := range [][2]string{
		{t.RuntimeID, r.RuntimeID}, {t.PlanName, r.ServicePlanName}, {t.Shoot, r.ShootName}, {t.InstanceID, r.InstanceID},
	} {
		if exact[0] != "" && exact[0] != exact[1] {
			return false
		}
	}
	for _, pattern := range [][2]string{{t.GlobalAccount, r.GlobalAccountID}, {t.SubAccount, r.SubAccountID}, {t.Region, r.Region}} {
		// parseTargets has compiled the expressions.
		if matches, err := regexp.MatchString(pattern[0], pattern[1]); pattern[0] != "" && (err != nil || !matches) {
			return false
		}
	}
	return operator.IsVersion(t.KymaVersion, r.KymaVersion) && (!t.Failed || r.Status.State == broker.RuntimeError)
}

// killAfter is how long a command may run after SIGTERM, and how long a process that it has left may hold its output.
const killAfter = 3 * time.Second

func (t *tasks) one(ctx context.Context, r *runtime, dir string, command []string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	content, err := t.client.Kubeconfig(ctx, r.InstanceID)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.Base(r.ShootName+"-"+r.RuntimeID)+".yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	if len(command) == 1 {
		command = shell(command[0])
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// The command gets a process group, so that no process that it has started is left.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	cmd.Env = append(environment(), "KUBECONFIG="+path, "INSTANCE_ID="+r.InstanceID, "RUNTIME_ID="+r.RuntimeID, "SHOOT_NAME="+r.ShootName,
		"GLOBALACCOUNT_ID="+r.GlobalAccountID, "SUBACCOUNT_ID="+r.SubAccountID, "PLAN_NAME="+r.ServicePlanName, "REGION="+r.Region)
	out := &lines{to: t.progress(), mu: &t.mu, before: r.ShootName + ": "}
	cmd.Stdout, cmd.Stderr = out, out // the same writer, so that exec does not write concurrently
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually there is none left
	}
	if printed := out.end(); err == nil {
		err = printed
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not finished within %s", t.timeout)
	}
	return err
}

// shell returns the command that runs a line. A line fails with any of its pipes, if the shell knows how.
func shell(line string) []string {
	if bash, err := exec.LookPath("bash"); err == nil {
		return []string{bash, "-o", "pipefail", "-c", line}
	}
	return []string{"sh", "-c", "(set -o pipefail) 2>/dev/null && set -o pipefail\n" + line}
}

// environment returns the environment of this process without the credentials of keb.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "KEB_TOKEN" || name == "KEB_OSB_PASSWORD"
	})
}

// maxLine is the maximum length of a line in bytes. The rest of a longer line counts as the next line.
const maxLine = 64 << 10

// lines prints the output of one command: each complete line with a prefix, never mixed with a line of another command.
type lines struct {
	to     io.Writer
	mu     *sync.Mutex // guards to
	before string
	rest   []byte // the incomplete last line
}

// Write implements io.Writer.
func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			if len(line) < maxLine {
				return len(text), nil
			}
			line, rest = line[:maxLine], line[maxLine:]
		}
		if err := l.print(line); err != nil {
			return 0, err
		}
		l.rest = rest
	}
}

// end prints an incomplete last line.
func (l *lines) end() error {
	if len(l.rest) == 0 {
		return nil
	}
	return l.print(l.rest)
}

func (l *lines) print(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.to, "%s%s\n", l.before, line)
	return err
}

// outcomeOf is the JSON output of one task.
type outcomeOf struct {
	InstanceID string `json:"instanceID"`
	RuntimeID  string `json:"runtimeID"`
	ShootName  string `json:"shootName"`
	Error      string `json:"error,omitempty"`
}

func (t *tasks) report(found []*task) error {
	failed := 0
	outcomes := make([]outcomeOf, len(found))
	for i, one := range found {
		outcomes[i] = outcomeOf{InstanceID: one.InstanceID, RuntimeID: one.RuntimeID, ShootName: one.ShootName}
		if one.err != nil {
			failed++
			outcomes[i].Error = one.err.Error()
			if _, err := fmt.Fprintf(t.progress(), "%s: FAILED: %v\n", one.ShootName, one.err); err != nil {
				return err
			}
		}
	}
	if t.json() {
		if err := printJSON(t.Out, outcomes); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("the command failed for %d of %d runtimes", failed, len(found))
	}
	_, err := fmt.Fprintf(t.progress(), "the command succeeded for %d runtimes\n", len(found))
	return err
}
