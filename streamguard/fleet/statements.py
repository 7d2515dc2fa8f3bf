"""What a store says to its database about sessions: each operation as one statement of SQL.

A session is a row. `due` says from when on it may be claimed, be it that it waits or that its lease ends, so that
one index finds both in their order. Who holds a session is the token and the owner of its row: each
statement of a holder names both in its WHERE, and finds nothing once another has claimed it. All times come
from `streamguard_now()`, the database's clock, which is asked once in a statement.

The same text does for SQLite and PostgreSQL. Values are parameters, `:name`; all else is written here.
"""

from __future__ import annotations

from typing import Final

_NOW: Final = "(SELECT streamguard_now())"
_MINE: Final = "key = :key AND token = :token AND owner = :owner"
_HELD: Final = f"{_MINE} AND status = 'running'"
_LIVES: Final = f"(status = 'running' AND due > {_NOW})"

SUBMIT: Final = f"""
INSERT INTO streamguard_sessions (
    key, status, due, heard, submitted, token, owner, attempt, fruitless, progressed, delivered, why, spec
)
SELECT :key, 'waiting', now, now, now, 0, '', 0, 0, 0, 0, '', :spec
FROM (SELECT {_NOW} AS now) AS clock
WHERE true
ON CONFLICT (key) DO NOTHING
RETURNING id
"""

# `progressed` is -1 until the claimant is heard of: a claim whose answer was lost says nothing against the session.
# Of one that was to be cancelled, the claim is its end. {SKIP}: what others are claiming is not waited for.
CLAIM: Final = f"""
WITH picked AS MATERIALIZED (
    SELECT id AS picked_id FROM streamguard_sessions
    WHERE due <= {_NOW} ORDER BY due, id LIMIT :limit {{SKIP}}
)
UPDATE streamguard_sessions SET
    status = CASE WHEN cancelling IS NULL THEN 'running' ELSE 'cancelled' END,
    owner = CASE WHEN cancelling IS NULL THEN :owner ELSE '' END,
    due = CASE WHEN cancelling IS NULL THEN {_NOW} + :ttl END,
    attempt = CASE WHEN cancelling IS NULL THEN attempt + 1 ELSE attempt END,
    why = CASE WHEN cancelling IS NOT NULL THEN cancelling WHEN status = 'running' THEN 'lost' ELSE why END,
    fruitless = CASE WHEN status = 'running' AND progressed = 0 THEN fruitless + 1 ELSE fruitless END,
    token = token + 1,
    progressed = -1,
    cancelling = NULL,
    ready = due,
    heard = {_NOW}
FROM picked WHERE id = picked_id
RETURNING ready, id, status, key, token, attempt, fruitless, spec, checkpoint, delivered
"""

_WRITTEN: Final = """
    checkpoint = COALESCE(:checkpoint, checkpoint),
    delivered = COALESCE(:delivered, delivered)
"""
BEAT: Final = f"""
UPDATE streamguard_sessions SET
    due = {_NOW} + :ttl,
    heard = {_NOW},
    progressed = CASE WHEN :progressed = 1 OR progressed = 1 THEN 1 ELSE 0 END,
    fruitless = CASE :progressed WHEN 1 THEN 0 ELSE fruitless END,
    {_WRITTEN}
WHERE {_HELD}
RETURNING key, cancelling IS NOT NULL
"""
# The same for all of them at once, where a statement can be given lists.
BEATS: Final = f"""
UPDATE streamguard_sessions AS s SET
    due = {_NOW} + :ttl,
    heard = {_NOW},
    progressed = CASE WHEN b.progressed = 1 OR s.progressed = 1 THEN 1 ELSE 0 END,
    fruitless = CASE b.progressed WHEN 1 THEN 0 ELSE s.fruitless END,
    checkpoint = COALESCE(b.checkpoint, s.checkpoint),
    delivered = COALESCE(b.delivered, s.delivered)
FROM unnest(
    CAST(:key AS TEXT[]), CAST(:token AS BIGINT[]), CAST(:owner AS TEXT[]),
    CAST(:progressed AS BIGINT[]), CAST(:checkpoint AS TEXT[]), CAST(:delivered AS BIGINT[])
) AS b (key, token, owner, progressed, checkpoint, delivered)
WHERE s.key = b.key AND s.token = b.token AND s.owner = b.owner AND s.status = 'running'
RETURNING s.key, s.cancelling IS NOT NULL
"""

# `gives_way`: a cancel that the owner has not heard of comes first.
END: Final = f"""
UPDATE streamguard_sessions SET
    status = CASE WHEN :gives_way = 1 AND cancelling IS NOT NULL THEN 'cancelled' ELSE :status END,
    why = CASE WHEN :gives_way = 1 AND cancelling IS NOT NULL THEN cancelling ELSE :why END,
    due = CASE WHEN :gives_way = 1 AND cancelling IS NOT NULL THEN NULL ELSE {_NOW} + :delay END,
    attempt = attempt - :uncounted,
    fruitless = CASE
        WHEN :progressed = 1 OR progressed = 1 THEN 0 ELSE fruitless + :fruitless
    END,
    cancelling = NULL,
    heard = {_NOW},
    {_WRITTEN}
WHERE {_HELD}
RETURNING id
"""
HAS_ENDED: Final = f"""
SELECT 1 FROM streamguard_sessions WHERE {_MINE}
AND (status = :status OR (status = 'cancelled' AND :gives_way = 1))
"""

RELEASE: Final = f"""
UPDATE streamguard_sessions SET status = 'waiting', owner = '', why = '', fruitless = 0, due = {_NOW}
WHERE key = :key AND status = 'parked'
RETURNING id
"""
# The owner of one that is lost is not waited for.
CANCEL: Final = f"""
UPDATE streamguard_sessions SET
    status = CASE WHEN {_LIVES} THEN 'running' ELSE 'cancelled' END,
    owner = CASE WHEN {_LIVES} THEN owner ELSE '' END,
    due = CASE WHEN {_LIVES} THEN due END,
    why = CASE WHEN {_LIVES} THEN why ELSE COALESCE(cancelling, :why) END,
    cancelling = CASE WHEN {_LIVES} THEN COALESCE(cancelling, :why) END
WHERE key = :key AND status IN ('waiting', 'running', 'parked')
RETURNING id
"""

LOG: Final = f"""
INSERT INTO streamguard_timeouts (logged, session, line)
SELECT {_NOW}, key, CAST(:line AS TEXT) FROM streamguard_sessions WHERE {_HELD} {{LOCK}}
RETURNING id
"""
# Of a session that is kept elsewhere.
NOTE: Final = f"""
INSERT INTO streamguard_timeouts (logged, session, line)
SELECT {_NOW}, CAST(:key AS TEXT), CAST(:line AS TEXT)
RETURNING id
"""
TIMEOUTS: Final = """
SELECT id, logged, session, line FROM streamguard_timeouts
WHERE logged >= :since AND id > :after ORDER BY id LIMIT 500
"""

_ROWS: Final = f"""
SELECT key, status, owner, attempt, fruitless, delivered, why,
    due, heard, submitted, cancelling IS NOT NULL, {_NOW}
FROM streamguard_sessions
"""
LIVE: Final = f"{_ROWS} WHERE status IN ('waiting', 'running', 'parked') ORDER BY id"
ALL: Final = f"{_ROWS} ORDER BY id"
ONE: Final = f"{_ROWS} WHERE key = :key"
