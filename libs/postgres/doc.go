// Package postgres provides all access to PostgreSQL: it opens databases, runs transactions, classifies errors and
// applies migrations. Only this package imports the driver, so that a change of driver affects only this folder.
package postgres
