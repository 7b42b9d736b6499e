package service

import (
	"fmt"
	"time"
)

// Positive reports a duration that is not positive by the name of its variable; it is for Validate methods.
func Positive(variable string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %s must be positive", variable, d)
	}
	return nil
}
