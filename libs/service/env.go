package service

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
)

// LoadEnv fills the struct that into points to from the environment, by its "env", "envDefault" and "envPrefix" tags
// (github.com/caarlos0/env), and then calls its method Validate() error, if it has one. It returns all problems in one error. Each
// contains the variable and the expected format, but not the value, which may be a secret.
//
// Each variable may come from a file, as with the secrets of container platforms: if X_FILE is set, X is the content of that
// file without its final line break.
func LoadEnv(into any) error { return loadEnv(into, env.ToMap(os.Environ())) }

// LoadEnvFrom is LoadEnv with the variables of a map, which it does not change, instead of those of the process. A variable that is not
// set gets the result of defaults, whose second argument is the default of the tag. If defaults is nil, the tag applies.
func LoadEnvFrom(into any, environment map[string]string, defaults func(name, byTag string) string) error {
	environment = maps.Clone(environment)
	if environment == nil {
		// With a nil map, the library would read the environment of the process.
		environment = map[string]string{}
	}
	if defaults != nil {
		fields, err := env.GetFieldParams(into)
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		for _, field := range fields {
			if environment[field.Key] != "" || environment[field.Key+fileSuffix] != "" {
				continue
			}
			if value := defaults(field.Key, field.DefaultValue); value != field.DefaultValue {
				environment[field.Key] = value
			}
		}
	}
	return loadEnv(into, environment)
}

func loadEnv(into any, environment map[string]string) error {
	fields, err := env.GetFieldParams(into)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Key
	}
	problems := fromFiles(names, environment)
	err = env.ParseWithOptions(into, env.Options{Environment: environment})
	var aggregate env.AggregateError
	if err != nil && !errors.As(err, &aggregate) {
		return fmt.Errorf("configuration: %w", err)
	}
	parse := false
	for _, e := range aggregate.Errors {
		if _, ok := errors.AsType[env.ParseError](e); ok {
			parse = true
			continue
		}
		problems = append(problems, problem(e))
	}
	if parse {
		problems = append(problems, unreadable(into, environment)...)
	}
	if v, ok := into.(interface{ Validate() error }); ok && len(problems) == 0 {
		problems = append(problems, v.Validate())
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

const fileSuffix = "_FILE"

// LoadSecret returns the value of one variable whose name is not known in advance, or the content of the file that its X_FILE names.
func LoadSecret(name string) (string, error) {
	environment := map[string]string{name: os.Getenv(name), name + fileSuffix: os.Getenv(name + fileSuffix)}
	if err := errors.Join(fromFiles([]string{name}, environment)...); err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	return environment[name], nil
}

// Defaults returns a configuration in which every field has its default.
func Defaults[C any]() C {
	var c C
	// The defaults are constants in struct tags, which the tests of each struct load.
	_ = env.ParseWithOptions(&c, env.Options{Environment: map[string]string{}})
	return c
}

// fromFiles sets variables to the contents of the files in their X_FILE variables, and to the empty string if a file
// cannot be read.
func fromFiles(names []string, environment map[string]string) (problems []error) {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		path := environment[name+fileSuffix]
		if path == "" || seen[name] {
			continue
		}
		seen[name] = true
		if environment[name] != "" {
			problems = append(problems, fmt.Errorf("%s and %s exclude each other", name, name+fileSuffix))
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			// The error of the file contains its path once more.
			problems = append(problems, fmt.Errorf("%s: the file %s cannot be read: %w", name+fileSuffix, absolute(path), errors.Unwrap(err)))
		}
		environment[name] = strings.TrimRight(string(content), "\r\n")
	}
	return problems
}

// absolute returns the absolute path of a file, for messages: a relative one depends on the working directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func problem(err error) error {
	if e, ok := errors.AsType[env.VarIsNotSetError](err); ok {
		return fmt.Errorf("%s: is required and not set", e.Key)
	}
	if e, ok := errors.AsType[env.EmptyVarError](err); ok {
		return fmt.Errorf("%s: must not be empty", e.Key)
	}
	return err
}

// unreadable returns the variables with invalid values. The library reports only the field, so each variable is parsed
// separately into its own struct.
func unreadable(into any, environment map[string]string) []error {
	fields, err := env.GetFieldParams(into)
	if err != nil {
		return []error{err}
	}
	var problems []error
	seen := map[string]bool{}
	for _, field := range fields {
		value, set := environment[field.Key]
		if !set || seen[field.Key] {
			continue
		}
		seen[field.Key] = true
		alone := reflect.New(reflect.TypeOf(into).Elem()).Interface()
		err := env.ParseWithOptions(alone, env.Options{Environment: map[string]string{field.Key: value}})
		var aggregate env.AggregateError
		if !errors.As(err, &aggregate) {
			continue
		}
		for _, e := range aggregate.Errors {
			if p, ok := errors.AsType[env.ParseError](e); ok {
				problems = append(problems, fmt.Errorf("%s: %s", field.Key, wanted(p.Type)))
			}
		}
	}
	return problems
}

func wanted(t reflect.Type) string {
	if t == nil {
		return "cannot be read"
	}
	if t.String() == "time.Duration" {
		return "want a duration such as 500ms, 30s or 5m"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "want a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "want a whole number that is not negative"
	case reflect.Float32, reflect.Float64:
		return "want a number"
	case reflect.Bool:
		return "want true or false"
	default:
		return "cannot be read as " + strings.TrimPrefix(t.String(), "*")
	}
}
