package service

import (
	"fmt"
	"time"
)

// Positive returns an error with the name of the variable if the duration is not positive. It is for Validate methods.
func Positive(variable string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %s must be positive", variable, d)
	}
	return nil
}

// NotNegative returns an error with the name of the variable if the duration is negative. It is for Validate methods.
func NotNegative(variable string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s: %s must not be negative", variable, d)
	}
	return nil
}
