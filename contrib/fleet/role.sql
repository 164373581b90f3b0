-- The coordinator's and collectors' user: it writes reports, and changes no table.
CREATE ROLE wirepath LOGIN;
GRANT wirepath_writer TO wirepath;
