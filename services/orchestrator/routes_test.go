package orchestrator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
)

// routes lists all routes of the operator address. Its requests change nothing, so that every caller finds the same state.
func routes(op string) []route {
	none := uuid.Must(uuid.NewV7()).String()
	return []route{
		{pattern: "GET /operations", role: access.Viewer, want: 200},
		{pattern: "GET /operations/{id}", target: "/operations/" + op, role: access.Viewer, want: 200},
		{pattern: "GET /operations/{id}/history", target: "/operations/" + op + "/history", role: access.Viewer, want: 200},
		{pattern: "GET /operations/{id}/tries/{line}", target: "/operations/" + op + "/tries/1", role: access.Viewer, want: 404}, // the start
		{pattern: "POST /operations/{id}/cancel", target: "/operations/" + op + "/cancel", role: access.Operator, want: 409},
		{pattern: "POST /operations/{id}/retry", target: "/operations/" + none + "/retry", role: access.Operator, want: 404},
		{pattern: "POST /operations/{id}/skip", target: "/operations/" + op + "/skip", body: `{"step":"Second"}`, contentType: jsonBody, role: access.Operator, want: 409},
		{pattern: "POST /facts/replay", body: `{}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "POST /events/{key}", target: "/events/a..b", body: `{}`, contentType: jsonBody, role: access.Sender, want: 400},
		{pattern: "GET /limits", role: access.Viewer, want: 200},
		{pattern: "PUT /limits", body: `{"document":"limits: 1"}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "GET /holds", role: access.Viewer, want: 200},
		{pattern: "POST /holds", body: `{"scope":{}}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "DELETE /holds/{id}", target: "/holds/" + none, role: access.Operator, want: 404},
		{pattern: "GET /webhooks", role: access.Viewer, want: 200},
		{pattern: "POST /webhooks", body: `{"name":""}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "GET /webhooks/{id}", target: "/webhooks/" + none, role: access.Viewer, want: 404},
		{pattern: "DELETE /webhooks/{id}", target: "/webhooks/" + none, role: access.Operator, want: 404},
		{pattern: "POST /webhooks/{id}/enable", target: "/webhooks/" + none + "/enable", role: access.Operator, want: 404},
		{pattern: "POST /webhooks/{id}/disable", target: "/webhooks/" + none + "/disable", role: access.Operator, want: 404},
		{pattern: "POST /webhooks/{id}/test", target: "/webhooks/" + none + "/test", role: access.Operator, want: 409},
		{pattern: "GET /webhooks/{id}/deliveries", target: "/webhooks/" + none + "/deliveries", role: access.Viewer, want: 404},
		{pattern: "GET /batches", role: access.Viewer, want: 200},
		{pattern: "POST /batches", body: `{"action":"retry","filter":""}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "GET /batches/{id}", target: "/batches/" + none, role: access.Viewer, want: 404},
		{pattern: "GET /batches/{id}/operations", target: "/batches/" + none + "/operations", role: access.Viewer, want: 404},
		{pattern: "POST /batches/{id}/pause", target: "/batches/" + none + "/pause", role: access.Operator, want: 404},
		{pattern: "POST /batches/{id}/resume", target: "/batches/" + none + "/resume", role: access.Operator, want: 404},
		{pattern: "POST /batches/{id}/cancel", target: "/batches/" + none + "/cancel", role: access.Operator, want: 404},
		{pattern: "GET /processes", role: access.Viewer, want: 200},
		{pattern: "GET /overlays", role: access.Viewer, want: 200},
		{pattern: "GET /overlays/versions", role: access.Viewer, want: 200},
		{pattern: "PUT /overlays/{id}", target: "/overlays/hello", body: `{"content":"operation: x"}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "DELETE /overlays/{id}", target: "/overlays/hello", role: access.Operator, want: 404},
		{pattern: "POST /overlays/rollback", body: `{"version":7}`, contentType: jsonBody, role: access.Operator, want: 404},
		{pattern: "GET /workers", role: access.Viewer, want: 200},
		{pattern: "POST /workers/{id}/ramps", target: "/workers/alpha/ramps", body: `{"version":""}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "DELETE /workers/{id}/ramps", target: "/workers/alpha/ramps", role: access.Operator, want: 404},
		{pattern: "GET /me", role: access.Viewer, want: 200},
		{pattern: "GET /actions", role: access.Viewer, want: 200},
		{pattern: "GET /overview", role: access.Viewer, want: 200},
		{pattern: "GET /stuck", role: access.Viewer, want: 200},
		{pattern: "GET /errors", role: access.Viewer, want: 200},
		{pattern: "GET /dead-letters", role: access.Viewer, want: 200},
		{pattern: "GET /dead-letters/{id}", target: "/dead-letters/99", role: access.Viewer, want: 404},
		{pattern: "POST /dead-letters/{id}/redrive", target: "/dead-letters/99/redrive", role: access.Operator, want: 404},
		{pattern: "DELETE /dead-letters/{id}", target: "/dead-letters/99", role: access.Operator, want: 404},
		{pattern: "GET /throughput", role: access.Viewer, want: 200},
		{pattern: "GET /steps", role: access.Viewer, want: 200},
		{pattern: "GET /find", target: "/find?q=abc", role: access.Viewer, want: 200},
		{pattern: "GET /instances/{id}", target: "/instances/" + none, role: access.Viewer, want: 200}, // no broker answers
		{pattern: "GET /instances/{id}/maintenance-window", target: "/instances/" + none + "/maintenance-window", role: access.Viewer, want: 200},
		{pattern: "GET /stream", role: access.Viewer, want: 503}, // the orchestrator has been stopped by then
		{pattern: "GET /events", target: "/events?operation_ids=" + op, role: access.Viewer, want: 200},
		{pattern: "POST /upgrade/kyma", body: `{}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "POST /upgrade/cluster", body: `{}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "GET /orchestrations", role: access.Viewer, want: 200},
		{pattern: "GET /orchestrations/{id}", target: "/orchestrations/" + none, role: access.Viewer, want: 404},
		{pattern: "GET /orchestrations/{id}/operations", target: "/orchestrations/" + none + "/operations", role: access.Viewer, want: 404},
		{pattern: "GET /orchestrations/{id}/operations/{operation}", target: "/orchestrations/" + none + "/operations/" + none, role: access.Viewer, want: 404},
		{pattern: "PUT /orchestrations/{id}/cancel", target: "/orchestrations/" + none + "/cancel", role: access.Operator, want: 404},
		{pattern: "PUT /orchestrations/{id}/pause", target: "/orchestrations/" + none + "/pause", role: access.Operator, want: 404},
		{pattern: "PUT /orchestrations/{id}/resume", target: "/orchestrations/" + none + "/resume", role: access.Operator, want: 404},
		{pattern: "PUT /orchestrations/{id}/approve", target: "/orchestrations/" + none + "/approve", role: access.Operator, want: 404},
		{pattern: "POST /orchestrations/{id}/retry", target: "/orchestrations/" + none + "/retry", contentType: formBody, role: access.Operator, want: 404},
		{pattern: "GET /{$}", target: "/", want: 303},
		{pattern: "GET /console/", want: 200},
		{pattern: "GET /console/login/methods", want: 200},
		{pattern: "POST /console/login", body: `{"token":""}`, contentType: jsonBody, want: 400},
		{pattern: "POST /console/logout", want: 204},
		{pattern: "GET /console/login/oidc", want: 303},
		{pattern: "GET /console/login/oidc/callback", want: 401},
		{pattern: "GET /healthz", want: 200},
		{pattern: "GET /readyz", want: 200},
		{pattern: "GET /metrics", want: 200},
	}
}

// registered returns the patterns that the source code adds to a mux, because a mux does not list its patterns.
func registered(t *testing.T) []string {
	t.Helper()
	files := token.NewFileSet()
	program := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		program[path], err = parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		return err
	})
	require.NoError(t, err)
	constants := constantsOf(program)
	found := map[string]bool{}
	for path, file := range program {
		if path == "internal/console/console.go" {
			continue // it has routes below its own
		}
		ast.Inspect(file, func(n ast.Node) bool {
			argument := patternOf(n)
			if in, ok := argument.(*ast.Ident); argument == nil || ok && in.Name == "pattern" { // the body of actionRoute
				return true
			}
			pattern, ok := text(argument, file.Name.Name, constants)
			if !ok {
				t.Errorf("%s: write the pattern with strings and constants, so that this test can read it", files.Position(n.Pos()))
				return true
			}
			if pattern != "/" { // the API is mounted there; unknown routes have a separate test
				found[pattern] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// patternOf returns the pattern in a call that adds a route, and nil for other nodes.
func patternOf(n ast.Node) ast.Expr {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case !ok:
	case f.Sel.Name == "actionRoute" && len(call.Args) == 4:
		return call.Args[1]
	case (f.Sel.Name == "Handle" || f.Sel.Name == "HandleFunc") && len(call.Args) == 2:
		return call.Args[0]
	}
	return nil
}

// constantsOf returns the string constants of packages, by "package.name".
func constantsOf(program map[string]*ast.File) map[string]ast.Expr {
	found := map[string]ast.Expr{}
	for _, file := range program {
		for _, d := range file.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, s := range general.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						found[file.Name.Name+"."+name.Name] = spec.Values[i]
					}
				}
			}
		}
	}
	return found
}

// text returns the value of a pattern in a package.
func text(e ast.Expr, in string, constants map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		left, ok := text(e.X, in, constants)
		right, also := text(e.Y, in, constants)
		return left + right, ok && also && e.Op == token.ADD
	case *ast.Ident:
		value, ok := constants[in+"."+e.Name]
		if !ok {
			return "", false
		}
		return text(value, in, constants)
	case *ast.SelectorExpr:
		if other, ok := e.X.(*ast.Ident); ok {
			return text(e.Sel, other.Name, constants)
		}
	}
	return "", false
}

func TestRoutes_Every_DeclaresItsRole(t *testing.T) {
	t.Parallel()
	known := map[string]route{}
	for _, rt := range routes("x") {
		known[rt.pattern] = rt
	}
	for _, pattern := range registered(t) {
		rt, ok := known[pattern]
		if !ok && !strings.Contains(pattern, " ") {
			rt, ok = known["GET "+pattern]
		}
		if !ok {
			t.Errorf("%s: the required role is unknown; add the route to routes in access_test.go", pattern)
			continue
		}
		reads := strings.HasPrefix(rt.pattern, "GET ")
		if rt.role != "" && reads != (rt.role == access.Viewer) {
			t.Errorf("%s: needs the role %s", pattern, rt.role)
		}
	}
}
