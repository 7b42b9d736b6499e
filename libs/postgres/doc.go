// Package postgres is the one door to PostgreSQL: it opens databases, runs transactions, classifies errors and
// applies migrations. It alone imports the driver, so that a change of driver stays in this folder.
package postgres
