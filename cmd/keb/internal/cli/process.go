package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

func newProcess(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "process", Short: "Work on process definitions, and change those of a running system"}
	var overlays []string
	var diff bool
	check := &cobra.Command{
		Use:   "check",
		Short: "Validate the process definitions with their overlays",
		Long: `Validate the process definitions with their overlays. Mistakes are reported with file and line. A warning is about a change
that is valid and probably not intended, such as a deprovisioning that leaves something behind.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			return checkProcesses(o, overlays, diff)
		},
	}
	check.Flags().BoolVar(&diff, "diff", false, "print what the overlays change in the built-in processes")
	cmd.AddCommand(newProcessChanges(o)...)
	rehearse := newProcessRehearse(o, &overlays)
	for _, sub := range []*cobra.Command{check, rehearse} {
		sub.Flags().StringSliceVar(&overlays, "overlays", overlayDirs(), "folders with overlay files, applied in order (KEB_OVERLAYS)")
		cmd.AddCommand(sub)
	}
	return cmd
}

// overlayDirs returns the folders in KEB_OVERLAYS, which are separated by commas.
func overlayDirs() []string {
	var dirs []string
	for dir := range strings.SplitSeq(os.Getenv("KEB_OVERLAYS"), ",") {
		if dir = strings.TrimSpace(dir); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

type checkedProcess struct {
	Operation event.OperationType `json:"operation"`
	Hash      string              `json:"hash"`
	Stages    int                 `json:"stages"`
	Steps     int                 `json:"steps"`
}

// checkedSet loads the built-in processes with overlay folders, and prints the mistakes in them.
func checkedSet(o *options, overlays []string) (process.Set, error) {
	set, err := loadProcesses(overlays)
	if _, isProblem := errors.AsType[*process.Problem](err); isProblem {
		// Editors expect one problem per line.
		if _, err := fmt.Fprintln(o.Err, err); err != nil {
			return nil, err
		}
		return nil, errors.New("the process definitions are invalid")
	}
	return set, err
}

func checkProcesses(o *options, overlays []string, diff bool) error {
	set, err := checkedSet(o, overlays)
	if err != nil {
		return err
	}
	builtIn, err := loadProcesses(nil)
	if err != nil {
		return err
	}
	warnings := process.Warnings(builtIn, set)
	list := struct {
		Data       []checkedProcess `json:"data"`
		Count      int              `json:"count"`
		TotalCount int              `json:"totalCount"`
		Warnings   []string         `json:"warnings,omitempty"`
		Diff       string           `json:"diff,omitempty"`
	}{Data: []checkedProcess{}, Warnings: warnings}
	var text strings.Builder
	for _, operation := range event.OperationTypes() {
		p, ok := set[operation]
		if !ok {
			continue
		}
		checked := checkedProcess{Operation: operation, Hash: p.Hash(), Stages: len(p.Stages)}
		for _, stage := range p.Stages {
			checked.Steps += len(stage.Steps)
		}
		list.Data = append(list.Data, checked)
		fmt.Fprintf(&text, "%s: %d stages, %d steps, hash %s\n", operation, checked.Stages, checked.Steps, checked.Hash)
	}
	list.Count, list.TotalCount = len(list.Data), len(list.Data)
	if diff {
		if list.Diff, err = processes.Diff(builtIn, set, "built in", "with overlays"); err != nil {
			return err
		}
		text.WriteString(list.Diff)
	}
	if o.json() {
		return printJSON(o.Out, list)
	}
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(o.Err, "warning: "+warning); err != nil {
			return err
		}
	}
	_, err = io.WriteString(o.Out, text.String())
	return err
}

// loadProcesses loads the built-in processes and applies overlay folders.
func loadProcesses(overlays []string) (process.Set, error) {
	folders, err := openOverlays(overlays)
	if err != nil {
		return nil, err
	}
	return process.Load(processes.FS, folders...)
}

func openOverlays(dirs []string) ([]fs.FS, error) {
	folders := make([]fs.FS, len(dirs))
	for i, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			return nil, fmt.Errorf("overlay folder %s does not exist; set an existing one with --overlays or KEB_OVERLAYS", dir)
		}
		folders[i] = process.Named(dir, os.DirFS(dir))
	}
	return folders, nil
}
