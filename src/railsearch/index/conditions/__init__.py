"""Conditions on metadata, written as text: a small grammar that can read columns and nothing else.

    condition  = term { OR term }                      AND binds closer than OR
    term       = factor { AND factor }
    factor     = NOT factor | ( condition ) | test
    test       = value (= | == | != | <> | < | <= | > | >=) value
               | column [NOT] IN ( literal, ... )
               | column [NOT] BETWEEN literal AND literal
               | column [NOT] LIKE 'pattern'           % is any text, _ is any one character
               | column IS [NOT] NULL
               | column | TRUE | FALSE                 a column of true and false
    value      = column | literal                      at least one of the two is a column
    column     = name | "name with spaces"             "" within the quotes is one quote
    literal    = 7 | -1.5 | 1e-3 | 'text' | TRUE | FALSE     '' within the quotes is one quote

Keywords may be written in lower case. Dates and times are compared with text: `added >= '2024-01-31'` or
`added < '2024-01-31 18:30'`, in the time zone of the column.

A comparison with a missing value is neither true nor false, as in SQL, and matches nothing; NaN counts as missing in
comparisons. Integers are compared exactly; numbers that are compared with a column of floats are rounded to its
precision. A condition has at most 4,096 bytes, 64 tests, 16 levels of parentheses, and 24 wildcards within its LIKE
patterns, so that an untrusted condition is parsed and evaluated quickly. It can neither call functions nor open files.
"""

from railsearch.index.conditions.expressions import compile_condition

__all__ = ["compile_condition"]
