package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/access"
)

func newAccess(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Manage access to the operator API",
	}
	cmd.AddCommand(newAccessToken(o))
	return cmd
}

func newAccessToken(o *options) *cobra.Command {
	var name, role string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create an access token",
		Long: `Create an access token and print it with its line for the token file (KEB_ACCESS_TOKENS_FILE).

The token is printed only once and is not stored: the line contains its hash. Give the token to its owner and add the line to the
file; running services notice the change. To replace a token, add the new line beside the old one, and remove the old line when
the old token is no longer used.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			token, hash := access.NewToken()
			line, err := access.TokenLine(name, access.Role(role), hash)
			if err != nil {
				return usageError("--%s", err)
			}
			if o.json() {
				return printJSON(o.Out, map[string]string{"token": token, "name": name, "role": role, "sha256": hash, "line": line})
			}
			// The token goes to Err, so that a redirected output holds the line for the token file only.
			if _, err := fmt.Fprintf(o.Err, "Token of %s, shown this once:\n%s\nIts line for the file in KEB_ACCESS_TOKENS_FILE:\n", name, token); err != nil {
				return err
			}
			_, err = fmt.Fprintln(o.Out, line)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "owner of the token; recorded with every action")
	flags.StringVar(&role, "role", string(access.Viewer), "viewer (read only), operator (read and act) or sender (send events to operations)")
	completeFlag(cmd, "role", texts(access.Roles()))
	return cmd
}
