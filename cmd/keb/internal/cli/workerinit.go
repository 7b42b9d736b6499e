package cli

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/scaffold"
)

func newWorkerInit(o *options) *cobra.Command {
	project := scaffold.Project{Parent: ".", LibraryVersion: libraryVersion()}
	languages := strings.Join(scaffold.Languages(), ", ")
	cmd := &cobra.Command{
		Use:   "init --lang LANGUAGE NAME",
		Short: "Create the project of a new step worker in Go, Node or Python",
		Long: `Create the project of a new step worker in a new folder NAME: a step for the provisioning and its counterpart for the
deprovisioning, their tests, an overlay, a Dockerfile, values for the chart step-worker, and a workflow for GitHub Actions.

NAME is the name of the worker. The libraries for Node and Python are in no package registry yet: --keb names a clone of KEB, and the
project gets a copy of the library. For Go, --keb makes the project use the library in the clone instead of a published version.`,
		Example: "  keb worker init --lang python --keb ../keb audit-log",
		Args:    exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			project.Name = args[0]
			return initWorker(o, project)
		},
	}
	cmd.Flags().StringVar(&project.Language, "lang", "", "language of the worker: "+languages)
	cmd.Flags().StringVar(&project.Clone, "keb", "", "folder of a clone of KEB with the library")
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(scaffold.Languages(), cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	return cmd
}

func initWorker(o *options, project scaffold.Project) error {
	if err := project.Check(); err != nil {
		return usageError("worker init: %s", err)
	}
	if err := checkWorkerIsNew(project.Name); err != nil {
		return err
	}
	if err := scaffold.Create(project); err != nil {
		return fmt.Errorf("worker init: %w", err)
	}
	if o.json() {
		return printJSON(o.Out, struct {
			Worker string   `json:"worker"`
			Steps  []string `json:"steps"`
			Next   []string `json:"next"`
		}{project.Name, scaffold.Steps(project.Name), project.Next()})
	}
	_, err := fmt.Fprintf(o.Out, "created %s, a worker with the steps %s; README.md explains it. Next:\n  %s\n",
		project.Name, strings.Join(scaffold.Steps(project.Name), " and "), strings.Join(project.Next(), "\n  "))
	return err
}

// checkWorkerIsNew rejects the name of a worker in the built-in processes: two workers with one name would share commands.
func checkWorkerIsNew(name string) error {
	set, err := loadProcesses(nil)
	if err != nil {
		return err
	}
	for _, p := range set {
		for _, stage := range p.Stages {
			for _, step := range stage.Steps {
				if step.Worker == name {
					return usageError("worker init: name %q: a worker of KEB has this name, for the step %s; choose another one", name, step.Name)
				}
			}
		}
	}
	return nil
}

// libraryVersion returns the version of the library for Go in the commit that keb was built from. It is empty if the commit is unknown, or
// the sources had changes.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	at, err := time.Parse(time.RFC3339, settings["vcs.time"])
	commit := settings["vcs.revision"]
	if err != nil || len(commit) < 12 || settings["vcs.modified"] != "false" {
		return ""
	}
	return "v0.0.0-" + at.UTC().Format("20060102150405") + "-" + commit[:12]
}
