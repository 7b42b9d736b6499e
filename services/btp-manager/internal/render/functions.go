package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// FunctionError means that a template calls a function with variable results.
type FunctionError struct {
	// Template is the file in the chart.
	Template string
	// Line is the line of the call, starting at 1.
	Line int
	// Function is the name of the function.
	Function string
	// Reason is the reason why the function is rejected.
	Reason string
}

func (e *FunctionError) Error() string {
	return fmt.Sprintf("%s:%d calls %s, which %s", e.Template, e.Line, e.Function, e.Reason)
}

// refused returns why a function of Helm's templates is rejected, or "" if it is allowed.
func refused(function string) string {
	switch function {
	case "lookup", "getHostByName", "env", "expandenv":
		return "looks outside of the chart"
	case "randAlpha", "randAlphaNum", "randAscii", "randBytes", "randInt", "randNumeric", "shuffle", "uuidv4":
		return "is random"
	case "bcrypt", "htpasswd", "encryptAES",
		"genCA", "genCAWithKey", "genPrivateKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey":
		return "makes random keys or salt"
	case "now", "ago", "date", "dateInZone", "date_in_zone", "htmlDate", "htmlDateInZone", "durationRound":
		return "reads the clock"
	case "toDate", "mustToDate", "must_toDate":
		return "depends on the time zone of the machine"
	case "keys", "values":
		return "has no fixed order; range over the map instead"
	case "tpl":
		return "runs text that cannot be checked beforehand"
	}
	return ""
}

// checkFunctions rejects calls of such functions in a template and in those that it defines.
func checkFunctions(name, text string) error {
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, defined := range slices.Sorted(maps.Keys(trees)) {
		if root := trees[defined].Root; root != nil {
			identifiers(root, func(id *parse.IdentifierNode) {
				if reason := refused(id.Ident); reason != "" {
					line := 1 + strings.Count(text[:min(int(id.Pos), len(text))], "\n")
					errs = append(errs, &FunctionError{Template: name, Line: line, Function: id.Ident, Reason: reason})
				}
			})
		}
	}
	return errors.Join(errs...)
}

// identifiers calls found for each function name below n.
func identifiers(n parse.Node, found func(*parse.IdentifierNode)) {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		found(n)
	case *parse.ListNode:
		if n == nil { // an if without an else has a list that is nil
			return
		}
		for _, child := range n.Nodes {
			identifiers(child, found)
		}
	case *parse.PipeNode:
		if n == nil { // a template call without an argument
			return
		}
		for _, command := range n.Cmds {
			identifiers(command, found)
		}
	case *parse.CommandNode:
		for _, arg := range n.Args {
			identifiers(arg, found)
		}
	case *parse.ChainNode:
		identifiers(n.Node, found)
	case *parse.ActionNode:
		identifiers(n.Pipe, found)
	case *parse.TemplateNode:
		identifiers(n.Pipe, found)
	case *parse.IfNode:
		branch(&n.BranchNode, found)
	case *parse.RangeNode:
		branch(&n.BranchNode, found)
	case *parse.WithNode:
		branch(&n.BranchNode, found)
	}
}

func branch(n *parse.BranchNode, found func(*parse.IdentifierNode)) {
	identifiers(n.Pipe, found)
	identifiers(n.List, found)
	identifiers(n.ElseList, found)
}
