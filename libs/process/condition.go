package process

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
)

// ErrCondition marks a condition that could not be evaluated, for example because it reads a missing parameter without calling has() first.
var ErrCondition = errors.New("condition")

// Limits of a condition. A condition with a small static cost bound is evaluated without cost tracking, which would cost more than the
// condition itself.
const (
	maxConditionLength = 2_000
	maxNestedLoops     = 2
	freeCost           = 2_000
	costLimit          = 200_000
)

// condition is a compiled condition; nil is always true.
type condition struct {
	program cel.Program
}

// Runs reports whether the step's condition is true. A step without a condition always runs. The error is ErrCondition.
func (s *Step) Runs(in *Input) (bool, error) {
	if s.condition == nil {
		return true, nil
	}
	out, _, err := s.condition.program.Eval((*activation)(in))
	if err != nil {
		return false, fmt.Errorf("%w of step %s: %w", ErrCondition, s.Name, err)
	}
	ok, isBool := out.Value().(bool)
	if !isBool {
		return false, fmt.Errorf("%w of step %s: the result is %s, not bool", ErrCondition, s.Name, out.Type().TypeName())
	}
	return ok, nil
}

// compiler compiles conditions. It creates its CEL environment on first use. The zero value is ready.
type compiler struct {
	env *cel.Env
}

// condition compiles a source. The error is one line with the position in the source.
func (c *compiler) condition(source string) (*condition, error) {
	if source == "" {
		return nil, nil
	}
	if len(source) > maxConditionLength {
		return nil, fmt.Errorf("%d characters are too long for a condition; at most %d", len(source), maxConditionLength)
	}
	if c.env == nil {
		env, err := newEnv()
		if err != nil {
			return nil, fmt.Errorf("set up CEL: %w", err)
		}
		c.env = env
	}
	ast, issues := c.env.Compile(source)
	if issues.Err() != nil {
		return nil, c.firstIssue(source, issues)
	}
	// dyn is also rejected: the type of a parameter is known only when an operation runs.
	if got := ast.OutputType(); !got.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("the result is %s, not bool%s", got, boolHint(source, got))
	}
	// The optimizer converts a list of constants to a set once, instead of at each evaluation.
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	estimate, err := c.env.EstimateCost(ast, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate its cost: %w", err)
	}
	if estimate.Min > costLimit {
		return nil, fmt.Errorf("it costs at least %d; at most %d is allowed", estimate.Min, costLimit)
	}
	if estimate.Max > freeCost {
		options = append(options, cel.CostLimit(costLimit))
	}
	program, err := c.env.Program(ast, options...)
	if err != nil {
		return nil, fmt.Errorf("plan it: %w", err)
	}
	return &condition{program: program}, nil
}

func newEnv() (*cel.Env, error) {
	provider, err := newProvider()
	if err != nil {
		return nil, err
	}
	return cel.NewEnv(
		cel.CustomTypeProvider(provider),
		cel.CustomTypeAdapter(provider.Registry),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxConditionLength),
		cel.ParserRecursionLimit(50),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateHomogeneousAggregateLiterals(),
			cel.ValidateComprehensionNestingLimit(maxNestedLoops)),
		cel.Variable(varOperation, cel.ObjectType(varOperation)),
		cel.Variable(varPlan, cel.ObjectType(varPlan)),
		cel.Variable(varContext, cel.ObjectType(varContext)),
		cel.Variable(varRuntime, cel.ObjectType(varRuntime)),
		cel.Variable(varUpdate, cel.ObjectType(varUpdate)),
		cel.Variable(varUpgrade, cel.ObjectType(varUpgrade)),
		cel.Variable(varParameters, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varDetails, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varCredentials, cel.ListType(cel.StringType)),
	)
}

// firstIssue returns the first problem that CEL found, in one line. The others usually follow from it.
func (c *compiler) firstIssue(source string, issues *cel.Issues) error {
	found := issues.Errors()
	if len(found) == 0 {
		return issues.Err()
	}
	first := found[0]
	message := strings.Join(strings.Fields(first.Message), " ")
	switch {
	case strings.HasPrefix(message, "undeclared reference to "):
		message = strings.TrimSuffix(message, " (in container '')") + "; allowed: " + strings.Join(variables, ", ")
	case strings.HasPrefix(message, "undefined field "):
		message = c.undefinedField(source, first, message)
	}
	if first.Location.Line() > 1 {
		return fmt.Errorf("%s (line %d, character %d)", message, first.Location.Line(), first.Location.Column()+1)
	}
	return fmt.Errorf("%s (character %d)", message, first.Location.Column()+1)
}

// undefinedField returns a message that names the struct and its fields, which the error of CEL lacks.
func (c *compiler) undefinedField(source string, e *cel.Error, message string) string {
	lines := strings.Split(source, "\n")
	if i := e.Location.Line() - 1; i < 0 || i >= len(lines) || e.Location.Column() > len(lines[i]) {
		return message
	}
	before := lines[e.Location.Line()-1][:e.Location.Column()]
	for _, name := range structNames {
		if fields, ok := c.fields(name); ok && strings.HasSuffix(before, name) {
			wrong := strings.Trim(strings.TrimPrefix(message, "undefined field "), "'")
			return fmt.Sprintf("%s has no field %s; allowed: %s", name, wrong, strings.Join(fields, ", "))
		}
	}
	return message
}

func (c *compiler) fields(structName string) ([]string, bool) {
	return c.env.CELTypeProvider().FindStructFieldNames(structName)
}

func boolHint(source string, got *cel.Type) string {
	if got.IsExactType(cel.DynType) {
		return "; compare it, for example " + strings.TrimSpace(source) + " == true"
	}
	return ""
}

// sizes limits the size of the values in conditions: names and IDs are short, and so are the lists of credentials.
type sizes struct{}

// EstimateCallCost leaves every call to the defaults of CEL.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize limits the fields of the operation. Parameters and details have no limit.
func (sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || path[0] == varParameters || path[0] == varDetails {
		return nil
	}
	return &cost.SizeEstimate{Min: 0, Max: 100}
}
