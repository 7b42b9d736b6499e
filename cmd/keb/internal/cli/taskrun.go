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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/api/operator"
)

// tasks holds the flags of keb taskrun.
type tasks struct {
	*options
	targets, excluded []string
	parallel          int
	timeout           time.Duration
	keep              string

	client *broker.Client
	mu     sync.Mutex // of what is printed
}

func newTaskrun(o *options) *cobra.Command {
	t := &tasks{options: o}
	cmd := &cobra.Command{
		Use:   "taskrun -t TARGET COMMAND [ARG...]",
		Short: "Run a command for each of many runtimes",
		Long: `Run a command for each of many runtimes, some at a time. Targets are written as for keb upgrade. One argument is a line for the shell;
several are a program and its arguments. The command finds in its environment KUBECONFIG, the path of the kubeconfig of its
runtime, and INSTANCE_ID, RUNTIME_ID, SHOOT_NAME, GLOBALACCOUNT_ID, SUBACCOUNT_ID, PLAN_NAME and REGION. What it prints is printed
line by line, as it comes, with the name of the shoot before each. The exit code is 0 if all commands succeeded.`,
		Example: "  keb taskrun -t plan=azure,region=^west -p 8 'kubectl get nodes -o name | wc -l'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("taskrun needs a command; see keb taskrun --help")
			}
			return t.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command belongs to it
	flags.StringArrayVarP(&t.targets, "target", "t", nil, "runtimes, see keb upgrade --help")
	flags.StringArrayVarP(&t.excluded, "target-exclude", "e", nil, "runtimes to leave out")
	flags.IntVarP(&t.parallel, "parallelism", "p", 4, "the most commands at the same time")
	flags.DurationVar(&t.timeout, "timeout", time.Hour, "how long one command may take")
	flags.StringVar(&t.keep, "kubeconfig-dir", "", "folder to keep the kubeconfigs in; they are deleted if not given")
	return cmd
}

// task is one runtime and what came of it.
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
		return usageError("--timeout must be longer than nothing")
	}
	found, err := t.find(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no runtime is like that; keb runtimes lists them")
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
	_ = group.Wait() // each task keeps its error
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.report(found)
}

// find lists the runtimes that the targets select.
func (t *tasks) find(ctx context.Context) ([]*task, error) {
	include, err := parseTargets("--target", t.targets)
	if err != nil {
		return nil, err
	}
	exclude, err := parseTargets("--target-exclude", t.excluded)
	if err != nil {
		return nil, err
	}
	items, err := t.runtimes(ctx, url.Values{"op_detail": {"last"}})
	if err != nil {
		return nil, err
	}
	var found []*task
	for _, raw := range items {
		var r runtime
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("list runtimes: %w", err)
		}
		if r.RuntimeID != "" && selected(include, &r) && !selected(exclude, &r) {
			found = append(found, &task{runtime: r})
		}
	}
	return found, nil
}

// selected tells whether one of the targets is like the runtime.
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
		// They were compiled when they were read.
		if matches, err := regexp.MatchString(pattern[0], pattern[1]); pattern[0] != "" && (err != nil || !matches) {
			return false
		}
	}
	return true
}

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
		command = []string{"sh", "-c", command[0]}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second // for what the command has left running
	cmd.Env = append(environment(), "KUBECONFIG="+path, "INSTANCE_ID="+r.InstanceID, "RUNTIME_ID="+r.RuntimeID, "SHOOT_NAME="+r.ShootName,
		"GLOBALACCOUNT_ID="+r.GlobalAccountID, "SUBACCOUNT_ID="+r.SubAccountID, "PLAN_NAME="+r.ServicePlanName, "REGION="+r.Region)
	out := &lines{to: t.progress(), mu: &t.mu, before: r.ShootName + ": "}
	cmd.Stdout, cmd.Stderr = out, out // the same writer, so that the two are written one after the other
	err = cmd.Run()
	if printed := out.end(); err == nil {
		err = printed
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not done within %s", t.timeout)
	}
	return err
}

// environment is ours without our own credentials.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "KEB_TOKEN" || name == "KEB_OSB_PASSWORD"
	})
}

// maxLine bounds what is kept of a line that does not end; the rest of it counts as the next line.
const maxLine = 64 << 10

// lines prints what one command prints: each line as soon as it is whole, with a prefix, and never one within another of another
// command.
type lines struct {
	to     io.Writer
	mu     *sync.Mutex // of to
	before string
	rest   []byte // of the line that has not ended
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

// end prints a last line without a line break.
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
