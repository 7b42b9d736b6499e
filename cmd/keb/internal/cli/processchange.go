package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/service"
)

// newProcessChanges returns the commands that change the processes of a running system.
func newProcessChanges(o *options) []*cobra.Command {
	var name string
	var dryRun bool
	apply := &cobra.Command{
		Use:   "apply FILE",
		Short: "Apply an overlay to a running system",
		Long: `Apply an overlay to a running system, in place of the applied one with the same name; FILE - reads the standard input. The overlay is
combined with the built-in processes, the overlays in files and the applied ones, and checked like by keb process check. If the result is
valid, all orchestrators use it for new operations within seconds. Operations that have begun keep their definitions. Role: operator.`,
		Example: "  keb process apply hello.yaml --dry-run\n  keb process apply hello.yaml",
		Args:    exactly("a file with an overlay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.applyOverlay(cmd.Context(), args[0], name, dryRun)
		},
	}
	apply.Flags().StringVar(&name, "name", "", "name of the overlay; that of the file if empty")
	remove := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an applied overlay from a running system",
		Long:  "Remove an applied overlay from a running system. The others must be valid without it. Role: operator.",
		Args:  exactly("the name of an overlay"),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.removeOverlay(cmd.Context(), args[0], dryRun) },
	}
	rollback := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Restore the applied overlays of an older version",
		Long: `Restore the applied overlays of an older version, as a new version. Version 0 has no overlays. keb process versions lists the versions.
Role: operator.`,
		Args: exactly("the number of a version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || version < 0 {
				return usageError("version %q: must be a number of keb process versions, or 0", args[0])
			}
			return o.rollBackOverlays(cmd.Context(), version, dryRun)
		},
	}
	for _, cmd := range []*cobra.Command{apply, remove, rollback} {
		cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the change and print the differences, without applying them")
	}
	versions := &cobra.Command{
		Use:   "versions",
		Short: "Show the overlays of a running system, and the newest versions of the applied ones",
		Args:  exactly(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.overlayVersions(cmd.Context()) },
	}
	return []*cobra.Command{apply, remove, rollback, versions}
}

// author is the name that the API records if access control is off.
func (o *options) author() string {
	if o.token != "" { // the API records its owner
		return ""
	}
	return env("USER", "")
}

func (o *options) applyOverlay(ctx context.Context, file, name string, dryRun bool) error {
	switch {
	case file == "-" && name == "":
		return usageError("apply - needs --name")
	case name == "":
		name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	content, err := o.readFile(file)
	if err != nil {
		return err
	}
	return o.changeOverlays(ctx, dryRun, func(c *operator.Client, ctx context.Context) (*operator.OverlayAnswer, json.RawMessage, error) {
		return c.ApplyOverlay(ctx, name, operator.OverlayRequest{Content: string(content), DryRun: dryRun, By: o.author()})
	})
}

func (o *options) removeOverlay(ctx context.Context, name string, dryRun bool) error {
	err := o.changeOverlays(ctx, dryRun, func(c *operator.Client, ctx context.Context) (*operator.OverlayAnswer, json.RawMessage, error) {
		return c.RemoveOverlay(ctx, name, operator.OverlayRemoval{DryRun: dryRun, By: o.author()})
	})
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no applied overlay %s; keb process versions shows them", name)
	}
	return err
}

func (o *options) rollBackOverlays(ctx context.Context, version int64, dryRun bool) error {
	err := o.changeOverlays(ctx, dryRun, func(c *operator.Client, ctx context.Context) (*operator.OverlayAnswer, json.RawMessage, error) {
		return c.RollBackOverlays(ctx, operator.OverlayRollback{Version: version, DryRun: dryRun, By: o.author()})
	})
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no version %d; keb process versions shows them", version)
	}
	return err
}

// changeOverlays changes the applied overlays, and prints what that changes in the processes.
func (o *options) changeOverlays(
	ctx context.Context, dryRun bool, ask func(*operator.Client, context.Context) (*operator.OverlayAnswer, json.RawMessage, error),
) error {
	return answer(ctx, o, ask, func(changed *operator.OverlayAnswer) error {
		for _, warning := range changed.Warnings {
			if _, err := fmt.Fprintln(o.Err, "warning: "+view.OneLine(warning)); err != nil {
				return err
			}
		}
		text := service.Printable(changed.Diff)
		switch {
		case !changed.Changed:
			text += fmt.Sprintf("no change; version %d applies\n", changed.Version)
		case dryRun:
			text += "not applied (--dry-run)\n"
		default:
			text += fmt.Sprintf("applied as version %d\n", changed.Version)
		}
		_, err := io.WriteString(o.Out, text)
		return err
	})
}

func (o *options) overlayVersions(ctx context.Context) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	overlays, raw, err := client.Overlays(ctx)
	if err != nil {
		return err
	}
	versions, rawVersions, err := client.OverlayVersions(ctx, operator.Page{})
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, map[string]json.RawMessage{"overlays": raw, "versions": rawVersions})
	}
	var text bytes.Buffer
	if overlays.Problem != "" {
		fmt.Fprintf(&text, "REJECTED since %s, the last valid overlays apply: %s\n", view.Time(*overlays.ProblemSince), view.OneLine(overlays.Problem))
	}
	for _, f := range overlays.Files {
		fmt.Fprintf(&text, "file %s, digest %.12s\n", view.OneLine(f.Name), f.Digest)
	}
	for i := range overlays.Applied {
		a := &overlays.Applied[i]
		fmt.Fprintf(&text, "applied %s, digest %.12s, since version %d\n", a.Name, a.Digest, a.Version)
	}
	if len(versions.Data) == 0 {
		fmt.Fprintln(&text, "no overlay was applied yet")
	} else {
		rows := make([][]string, len(versions.Data))
		for i := range versions.Data {
			rows[i] = versionRow(&versions.Data[i], overlays.InUse)
		}
		text.WriteString(view.Table([]string{"VERSION", "CHANGE", "TIME", "BY", "OVERLAYS"}, rows, 0))
	}
	_, err = io.Copy(o.Out, &text)
	return err
}

// versionRow returns the row of a version. The one that new operations use has a mark.
func versionRow(v *operator.OverlayVersion, inUse int64) []string {
	change, mark := v.Action+" "+v.Name, ""
	if v.Restored != nil {
		change = fmt.Sprintf("%s to %d", v.Action, *v.Restored)
	}
	if v.Version == inUse {
		mark = "*"
	}
	names := make([]string, len(v.Overlays))
	for i := range v.Overlays {
		names[i] = v.Overlays[i].Name
	}
	return []string{strconv.FormatInt(v.Version, 10) + mark, change, view.Time(v.Time), v.By, dash(strings.Join(names, ", "))}
}
