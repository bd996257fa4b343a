//! The owner's record of a store file: the name of the server whose objects the file has.
//!
//! A server refuses the file of another one. Files without a record, such as those of earlier programs, belong to any server, and
//! get the name of the first that opens them. Programs that do not know the record ignore its table.

use redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

const OWNER: TableDefinition<'static, &'static str, &'static str> = TableDefinition::new("owner");

/// The row with the name.
const NAME: &str = "name";

/// The recorded name.
pub(super) fn read(database: &impl ReadableDatabase) -> Result<Option<String>, redb::Error> {
    match database.begin_read()?.open_table(OWNER) {
        Ok(table) => Ok(table.get(NAME)?.map(|row| row.value().to_owned())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Records the name.
pub(super) fn write(transaction: &WriteTransaction, owner: &str) -> Result<(), redb::Error> {
    transaction.open_table(OWNER)?.insert(NAME, owner)?;
    Ok(())
}

/// Records the name in a transaction of its own. The journal of a store that was not closed stays valid.
pub(super) fn record(database: &Database, owner: &str) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    write(&transaction, owner)?;
    transaction.commit()?;
    Ok(())
}
