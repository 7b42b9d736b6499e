package service

import "fmt"

// Command is the command among the arguments of a service, empty if there is none. A service that only checks its configuration runs no
// command, and there is never more than one.
func Command(args []string, checkOnly bool) (string, error) {
	switch {
	case len(args) == 0:
		return "", nil
	case checkOnly:
		return "", fmt.Errorf("argument %q: with -check-config nothing else is done; call it alone", args[0])
	case len(args) > 1:
		return "", fmt.Errorf("argument %q: %s takes none; flags stand before it", args[1], args[0])
	}
	return args[0], nil
}
