package dispatch

import "github.com/kyma-project/keb/services/orchestrator/internal/limit"

// Limits knows the limits. The caller must not modify them.
type Limits interface {
	// Current returns the limits and their version.
	Current() (*limit.Set, int64)
}

// noLimits is used without Deps.Limits.
type noLimits struct{}

func (noLimits) Current() (*limit.Set, int64) { return &limit.Set{}, 0 }
