"""Macros of DuckDB that look private ids up, as docs/FORMAT.md has them.

HMAC-SHA-256 by its definition: the key, padded to a block of 64 bytes, is mixed with two constants.
"""

HMAC_SQL = """
create macro mixed(key, byte) as (
    select string_agg(printf('%02x', xor(('0x' || substr(rpad(key, 128, '0'), 2 * i + 1, 2))::int, byte)), '' order by i)
    from range(64) t(i));
create macro hmac_sha256(key, id) as
    sha256(unhex(mixed(key, 92)) || unhex(sha256(unhex(mixed(key, 54)) || encode(id))));
"""
